"""The tasks of Celery's workload, and the settings of its workers. The environment has the PORT,
and in VISIBILITY_SECONDS after which time a message that was not acknowledged is taken again."""

import os
import signal
import time

import celery
import redis

URL = f"redis://127.0.0.1:{os.environ['PORT']}"

app = celery.Celery("tasks", broker=f"{URL}/0", backend=f"{URL}/1")
app.conf.update(
    broker_connection_retry_on_startup=True,
    broker_transport_options={
        "visibility_timeout": int(os.environ.get("VISIBILITY_SECONDS", "3600")),
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
        "priority_steps": [0, 3, 6, 9],
        "queue_order_strategy": "priority",
    },
    result_expires=3600,
    result_extended=True,
    task_track_started=True,
    worker_prefetch_multiplier=1,
    task_routes={"tasks.noted": {"queue": "ordered"}, "tasks.lost": {"queue": "lost"}},
)

notes = redis.Redis(port=int(os.environ["PORT"]), db=2, decode_responses=True)


@app.task
def add(a, b):
    return a + b


@app.task
def total(numbers):
    return sum(numbers)


@app.task
def broken(text):
    raise ValueError(text)


@app.task(ignore_result=True)
def silent(text):
    notes.rpush("silent", text)


@app.task
def noted(text, seconds=0):
    """Notes the order in which tasks run."""
    notes.rpush("order", text)
    time.sleep(seconds)
    return text


@app.task(bind=True, max_retries=3)
def patient(self, name, succeeds_at):
    attempt = notes.incr(f"attempts:{name}")
    if attempt < succeeds_at:
        raise self.retry(countdown=0.1, exc=RuntimeError(f"attempt {attempt}"))
    return [attempt, self.request.retries]


@app.task(autoretry_for=(KeyError,), retry_backoff=False, default_retry_delay=0.1, max_retries=2)
def stubborn(name):
    notes.incr(f"attempts:{name}")
    raise KeyError(name)


@app.task(bind=True)
def replaced(self, a, b):
    raise self.replace(add.s(a, b) | add.s(100))


@app.task(bind=True, acks_late=True)
def lost(self):
    """Takes its worker with it the first time."""
    attempt = notes.incr("lost")
    if attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return [attempt, self.request.delivery_info["redelivered"]]


@app.task(bind=True)
def steps(self, count):
    for step in range(count):
        self.update_state(state="PROGRESS", meta={"step": step})
        notes.rpush("steps", str(self.AsyncResult(self.request.id).info))
    return count


@app.task(rate_limit="4/s")
def limited():
    notes.rpush("limited", time.time())
