"""A program that locks by kazoo. Arguments: the server's port, the path, and the kind of lock. It does what each line of its input
says, and answers by a line."""
import sys
import time

from kazoo.client import KazooClient


def say(word):
    print(word, flush=True)


client = KazooClient(hosts="127.0.0.1:" + sys.argv[1], timeout=60)
client.start(timeout=30)
kinds = {"mutex": client.Lock, "read": client.ReadLock, "write": client.WriteLock}
lock = kinds[sys.argv[3]](sys.argv[2], "kazoo")
say("ready")
for line in sys.stdin:
    words = line.split()
    if words[0] == "lock":
        lock.acquire()
        say("held")
    elif words[0] == "try":
        say("held" if lock.acquire(blocking=False) else "refused")
    elif words[0] == "unlock":
        lock.release()
        say("released")
    elif words[0] == "contenders":
        say(",".join(lock.contenders()))
    elif words[0] == "increment":
        lock.acquire()
        say("held")
        with open(words[1]) as counter:
            count = int(counter.read())
        time.sleep(0.005)
        with open(words[1], "w") as counter:
            counter.write(str(count + 1))
        lock.release()
        say("done")
    elif words[0] == "append":
        lock.acquire()
        with open(words[1], "a") as order:
            order.write(words[2] + "\n")
        lock.release()
        say("done")
    else:
        raise ValueError(line)
client.stop()
