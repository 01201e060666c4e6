"""`python -m steelyard.worker FD`: serve one model to the replica at the other end of the socket FD."""

import os
import socket
import sys

if os.environ.pop("PYTHONSAFEPATH", "") and sys.version_info < (3, 11):
    del sys.path[0]  # the folder that it was started in, whose modules are nobody's business here

from steelyard.worker.service import end_process, serve

control = socket.socket(fileno=int(sys.argv[1]))
control.set_inheritable(False)  # the model's own children must not keep it open
serve(control)
end_process()
