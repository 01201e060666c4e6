"""Starts the platform's processes, keeps them alive, and leaves none behind. The public face is `Supervisor`:

    async with Supervisor(settings) as platform:  # control and routers answer when the block is entered
        platform.settings     # with the real port, if 0 was asked
        platform.first_token  # a new administrator's token, told this once; None when the saved one still works
        await platform.wait() # until SIGTERM, SIGINT, SIGHUP or `platform.stop()`

At the end of the block the routers finish what they have, then control stops the replicas, then whatever is left is
killed. A signal while the block runs without waiting cancels it, and the block ends quietly; a second signal skips all
grace. `StartError` says in one sentence why the platform cannot start. Killed with -9, the supervisor takes everything
down too: its children see the end of the lifeline pipe.
"""

from steelyard.supervisor.ground import StartError
from steelyard.supervisor.platform import Supervisor

__all__ = ["StartError", "Supervisor"]
