"""What a Python program does with redis-py's Sentinel client while the primary fails.
Usage: redis_py_sentinel.py NAME SENTINEL_PORT...

Says "going" when it has written for a while, "again" when it writes once more behind a failure, and
"ok" when it has read what it wrote, from a replica too."""

import sys
import time

import redis
from redis.sentinel import MasterNotFoundError, Sentinel, SlaveNotFoundError

FAILURES = (
    redis.ConnectionError,
    redis.TimeoutError,
    redis.ReadOnlyError,
    redis.BusyLoadingError,
    MasterNotFoundError,
    SlaveNotFoundError,
)
WRITES = 100
LIMIT_S = 60


def say(word):
    print(word, flush=True)


def main():
    name, ports = sys.argv[1], [int(port) for port in sys.argv[2:]]
    end = time.monotonic() + LIMIT_S
    sentinel = Sentinel([("127.0.0.1", port) for port in ports], socket_timeout=1)
    primary = sentinel.master_for(name, decode_responses=True)
    replica = sentinel.slave_for(name, decode_responses=True)

    def keep_trying(action):
        """The result of the action, and whether it failed before."""
        failed = False
        while time.monotonic() < end:
            try:
                return action(), failed
            except FAILURES:
                failed = True
                time.sleep(0.01)
        raise TimeoutError("it does not come back")

    count, failed, wanted = 0, False, None
    while wanted is None or count < wanted:
        result, has_failed = keep_trying(lambda: primary.set("redis-py", count + 1))
        assert result is True
        count += 1
        if count == WRITES:
            say("going")
        if has_failed and not failed:
            failed, wanted = True, count + WRITES
            say("again")
        assert time.monotonic() < end, "no failure came"
    assert keep_trying(lambda: primary.get("redis-py"))[0] == str(count)
    while keep_trying(lambda: replica.get("redis-py"))[0] != str(count):
        assert time.monotonic() < end, "the replica does not have it"
    say("ok")


if __name__ == "__main__":
    main()
