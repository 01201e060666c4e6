"""`python -m steelyard.worker FD`: serve one model to the replica at the other end of the socket FD."""

import socket
import sys

from steelyard.worker.service import end_process, serve

control = socket.socket(fileno=int(sys.argv[1]))
control.set_inheritable(False)  # the model's own children must not keep it open
serve(control)
end_process()
