"""Has the server of :mod:`tests.warm_programs` run a program with this process's streams: SOCKET PROGRAM ARGUMENTS...

It starts without ``site``, and imports little: that is what it is for.
"""

import json
import os
import socket
import sys

place, *call = sys.argv[1:]
with socket.socket(socket.AF_UNIX) as server:
    server.connect(place)
    asked = json.dumps([call, dict(os.environ), os.getcwd()]).encode()
    socket.send_fds(server, [len(asked).to_bytes(8, "little")], [0, 1, 2])
    server.sendall(asked)
    answer = server.recv(1)
sys.exit(answer[0] if answer else "the program ended without an exit code")
