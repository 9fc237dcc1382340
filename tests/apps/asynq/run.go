// What asynq's servers do with their tasks. Prints what was seen, in the same order in each run:
// run PORT.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"sort"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

var (
	address   = "127.0.0.1:" + os.Args[1]
	option    = asynq.RedisClientOpt{Addr: address}
	client    = asynq.NewClient(option)
	inspector = asynq.NewInspector(option)
	database  = redis.NewClient(&redis.Options{Addr: address})
	ctx       = context.Background()
)

func main() {
	pending()
	priorities()
	results()
	unique()
	scheduled()
	retries()
	deadlines()
	groups()
	paused()
	cancelled()
	interrupted()
	periodic()
	many()
	left()
}

// What waits in a queue before a server runs.
func pending() {
	for n := range 5 {
		info := enqueue("note", fmt.Sprint(n), asynq.Queue("first"), asynq.TaskID(fmt.Sprint("id", n)))
		show("enqueued", []any{info.ID, info.State.String(), info.Queue, info.MaxRetry, info.Timeout.String()})
	}
	_, err := client.Enqueue(asynq.NewTask("note", nil), asynq.Queue("first"), asynq.TaskID("id1"))
	show("same ID", texts(err))
	show("queues", value(inspector.Queues()))
	show("listed", ids(inspector.ListPendingTasks("first")))
	show("second page", ids(inspector.ListPendingTasks("first", asynq.PageSize(2), asynq.Page(2))))
	show("deleted", texts(inspector.DeleteTask("first", "id2"), inspector.DeleteTask("first", "id2")))
	show("archived", texts(inspector.ArchiveTask("first", "id3")))
	show("info", counts("first"))
	show("run again", texts(inspector.RunTask("first", "id3"), inspector.RunTask("first", "id3")))
	show("no such queue", texts(second(inspector.GetQueueInfo("nowhere"))))
	show("no such task", texts(second(inspector.GetTaskInfo("first", "nobody"))))
	noted := serve(1, map[string]int{"first": 1}, 4, note)
	show("order", noted)
}

// A strict server takes the tasks of the more important queues first.
func priorities() {
	for _, queue := range []string{"low", "middle", "high", "low", "high"} {
		enqueue("note", queue, asynq.Queue(queue))
	}
	show("strict", serve(1, map[string]int{"low": 1, "middle": 3, "high": 6}, 5, note))
}

// What a handler wrote is kept for as long as was asked for.
func results() {
	enqueue("result", "", asynq.TaskID("kept"), asynq.Retention(time.Hour))
	enqueue("result", "", asynq.TaskID("dropped"))
	serve(1, map[string]int{"default": 1}, 2, func(_ context.Context, task *asynq.Task) error {
		_, err := task.ResultWriter().Write([]byte("result of " + task.ResultWriter().TaskID()))
		return err
	})
	info := value(inspector.GetTaskInfo("default", "kept")).(*asynq.TaskInfo)
	show("kept", []any{info.State.String(), string(info.Result), info.CompletedAt.IsZero(), info.Retried})
	show("dropped", texts(second(inspector.GetTaskInfo("default", "dropped"))))
	show("completed", ids(inspector.ListCompletedTasks("default")))
	show("deleted", value(inspector.DeleteAllCompletedTasks("default")))
}

// A unique task is refused while another one of its kind waits.
func unique() {
	task := asynq.NewTask("note", []byte("unique"))
	_, err := client.Enqueue(task, asynq.Unique(time.Hour))
	show("unique", texts(err))
	_, err = client.Enqueue(task, asynq.Unique(time.Hour))
	show("again", []any{texts(err), errors.Is(err, asynq.ErrDuplicateTask)})
	_, err = client.Enqueue(asynq.NewTask("note", []byte("other")), asynq.Unique(time.Hour))
	show("other", texts(err))
	keys := database.Keys(ctx, "asynq:{default}:unique:*").Val()
	seconds := database.TTL(ctx, keys[0]).Val().Seconds()
	show("locks", []any{len(keys), seconds > 3500 && seconds <= 3600})
	show("ran", serve(1, map[string]int{"default": 1}, 2, note))
	_, err = client.Enqueue(task, asynq.Unique(time.Hour))
	show("after it ran", texts(err))
	show("emptied", value(inspector.DeleteAllPendingTasks("default")))
}

// What is due first runs first, and not before its time.
func scheduled() {
	begun := time.Now()
	enqueue("note", "later", asynq.ProcessIn(3*time.Second))
	enqueue("note", "soon", asynq.ProcessAt(begun.Add(time.Second)))
	enqueue("note", "tomorrow", asynq.ProcessIn(24*time.Hour), asynq.TaskID("tomorrow"))
	enqueue("note", "never", asynq.ProcessIn(48*time.Hour), asynq.TaskID("never"))
	show("scheduled", counts("default"))
	show("order", serve(1, map[string]int{"default": 1}, 2, note))
	// Times are kept in whole seconds.
	show("waited", time.Since(begun) >= 2*time.Second)
	show("listed", ids(inspector.ListScheduledTasks("default")))
	show("run now", texts(inspector.RunTask("default", "tomorrow")))
	show("ran", serve(1, map[string]int{"default": 1}, 1, note))
	show("deleted", value(inspector.DeleteAllScheduledTasks("default")))
}

// A task that fails is tried again, until it may no more.
func retries() {
	enqueue("third", "", asynq.TaskID("third"), asynq.MaxRetry(5), asynq.Retention(time.Hour))
	enqueue("never", "", asynq.TaskID("never"), asynq.MaxRetry(2))
	enqueue("fatal", "", asynq.TaskID("fatal"), asynq.MaxRetry(5))
	enqueue("panics", "", asynq.TaskID("panics"), asynq.MaxRetry(0))
	var lock sync.Mutex
	attempts := map[string]int{}
	serve(2, map[string]int{"default": 1}, 8, func(ctx context.Context, task *asynq.Task) error {
		lock.Lock()
		attempts[task.Type()]++
		lock.Unlock()
		retried, _ := asynq.GetRetryCount(ctx)
		switch {
		case task.Type() == "fatal":
			return fmt.Errorf("fatal: %w", asynq.SkipRetry)
		case task.Type() == "panics":
			panic("at once")
		case task.Type() == "third" && retried == 2:
			return nil
		}
		return fmt.Errorf("attempt %d", retried)
	})
	show("attempts", attempts)
	for _, id := range []string{"third", "never", "fatal", "panics"} {
		info := value(inspector.GetTaskInfo("default", id)).(*asynq.TaskInfo)
		text := regexp.MustCompile(`\[.*\]`).ReplaceAllString(info.LastErr, "[PLACE]")
		show(id, []any{info.State.String(), info.Retried, info.MaxRetry, text})
	}
	show("info", counts("default"))
	archived := ids(inspector.ListArchivedTasks("default"))
	sort.Strings(archived)
	show("archived", archived)
	show("brought back", value(inspector.RunAllArchivedTasks("default")))
	show("ran", len(serve(2, map[string]int{"default": 1}, 3, note)))
	show("left", counts("default"))
	show("deleted", value(inspector.DeleteAllCompletedTasks("default")))
}

// A handler is told when its time is over.
func deadlines() {
	enqueue("timeout", "", asynq.Timeout(time.Second), asynq.MaxRetry(0), asynq.TaskID("timeout"))
	enqueue("deadline", "", asynq.Deadline(time.Now().Add(4*time.Second)), asynq.MaxRetry(0),
		asynq.TaskID("deadline"))
	serve(2, map[string]int{"default": 1}, 2, func(ctx context.Context, task *asynq.Task) error {
		<-ctx.Done()
		return ctx.Err()
	})
	for _, id := range []string{"timeout", "deadline"} {
		info := value(inspector.GetTaskInfo("default", id)).(*asynq.TaskInfo)
		show(id, []any{info.State.String(), info.LastErr})
	}
	show("deleted", value(inspector.DeleteAllArchivedTasks("default")))
}

// Tasks of a group become one task: at once when they are enough, or after some time.
func groups() {
	for n := range 5 {
		enqueue("member", fmt.Sprint(n), asynq.Group("full"), asynq.Queue("grouped"))
	}
	for n := range 2 {
		enqueue("member", fmt.Sprint(n), asynq.Group("few"), asynq.Queue("grouped"))
	}
	found := value(inspector.Groups("grouped")).([]*asynq.GroupInfo)
	sort.Slice(found, func(a, b int) bool { return found[a].Group < found[b].Group })
	for _, group := range found {
		show("group", []any{group.Group, group.Size})
	}
	show("aggregating", []any{
		len(ids(inspector.ListAggregatingTasks("grouped", "full"))), counts("grouped"),
	})
	noted := serve(1, map[string]int{"grouped": 1}, 2, note)
	sort.Strings(noted)
	show("aggregated", noted)
	show("left", counts("grouped"))
}

// A paused queue keeps its tasks.
func paused() {
	enqueue("note", "paused", asynq.Queue("still"))
	show("paused", texts(inspector.PauseQueue("still"), inspector.PauseQueue("still")))
	enqueue("note", "other", asynq.Queue("default"))
	queues := map[string]int{"still": 6, "default": 1}
	show("ran", serve(1, queues, 1, note))
	info := value(inspector.GetQueueInfo("still")).(*asynq.QueueInfo)
	show("kept", []any{info.Paused, info.Pending})
	show("resumed", texts(inspector.UnpauseQueue("still")))
	show("ran then", serve(1, queues, 1, note))
	show("not empty", func() []string {
		enqueue("note", "x", asynq.Queue("still"))
		return texts(inspector.DeleteQueue("still", false))
	}())
	show("removed", texts(inspector.DeleteQueue("still", true)))
	names := value(inspector.Queues()).([]string)
	sort.Strings(names)
	show("queues left", names)
}

// A task that runs can be told to end.
func cancelled() {
	info := enqueue("endless", "", asynq.MaxRetry(0), asynq.TaskID("endless"))
	begun := make(chan struct{})
	go func() {
		<-begun
		for inspector.CancelProcessing(info.ID) == nil {
			found, err := inspector.GetTaskInfo("default", "endless")
			if err != nil || found.State != asynq.TaskStateActive {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	serve(1, map[string]int{"default": 1}, 1, func(ctx context.Context, _ *asynq.Task) error {
		show("active", []any{counts("default"), ids(inspector.ListActiveTasks("default"))})
		wait("the server is seen", func() bool {
			servers, _ := inspector.Servers()
			return len(servers) == 1 && len(servers[0].ActiveWorkers) == 1
		})
		close(begun)
		<-ctx.Done()
		return ctx.Err()
	})
	found := value(inspector.GetTaskInfo("default", "endless")).(*asynq.TaskInfo)
	show("cancelled", []any{found.State.String(), found.LastErr})
	wait("the server is gone", func() bool {
		servers, _ := inspector.Servers()
		return len(servers) == 0
	})
	show("deleted", value(inspector.DeleteAllArchivedTasks("default")))
}

// A server that stops puts back what it has not done.
func interrupted() {
	enqueue("slow", "", asynq.TaskID("slow"))
	serve(1, map[string]int{"default": 1}, 0, func(ctx context.Context, _ *asynq.Task) error {
		<-ctx.Done()
		time.Sleep(time.Second)
		return nil
	})
	info := value(inspector.GetTaskInfo("default", "slow")).(*asynq.TaskInfo)
	show("put back", []any{info.State.String(), info.Retried, counts("default")})
	show("ran then", serve(1, map[string]int{"default": 1}, 1, note))
}

// A scheduler enqueues tasks again and again.
func periodic() {
	scheduler := asynq.NewScheduler(option, &asynq.SchedulerOpts{Logger: silent{}})
	id, err := scheduler.Register("@every 1s", asynq.NewTask("note", []byte("tick")), asynq.Queue("ticks"))
	show("registered", []any{len(id), texts(err)})
	if err := scheduler.Start(); err != nil {
		show("scheduler", err.Error())
	}
	wait("the entry is seen", func() bool {
		entries, _ := inspector.SchedulerEntries()
		return len(entries) == 1
	})
	entries := value(inspector.SchedulerEntries()).([]*asynq.SchedulerEntry)
	show("entry", []any{entries[0].Spec, entries[0].Task.Type(), len(entries[0].Opts)})
	ticks := serve(1, map[string]int{"ticks": 1}, 2, note)
	show("ticks", ticks[:2])
	events, _ := inspector.ListSchedulerEnqueueEvents(id)
	show("events", len(events) >= 2)
	scheduler.Shutdown()
	entries, _ = inspector.SchedulerEntries()
	show("entries left", len(entries))
	value(inspector.DeleteAllPendingTasks("ticks"))
	show("removed", texts(inspector.DeleteQueue("ticks", true)))
}

// Each of many tasks runs once.
func many() {
	var group sync.WaitGroup
	for part := range 4 {
		group.Go(func() {
			for n := range 100 {
				enqueue("note", fmt.Sprintf("%03d", 100*part+n), asynq.Queue("many"))
			}
		})
	}
	noted := serve(10, map[string]int{"many": 1}, 400, note)
	group.Wait()
	sort.Strings(noted)
	show("many", []any{len(noted), noted[0], noted[399]})
	info := value(inspector.GetQueueInfo("many")).(*asynq.QueueInfo)
	show("today", []any{info.Processed, info.Failed, info.Size})
	days := value(inspector.History("many", 2)).([]*asynq.DailyStats)
	show("history", []any{len(days), days[0].Processed + days[1].Processed})
}

func left() {
	kinds := map[string]bool{}
	for _, key := range database.Keys(ctx, "*").Val() {
		kind := regexp.MustCompile(`\d{4}-\d\d-\d\d`).ReplaceAllString(key, "DAY")
		kinds[fmt.Sprint(kind, " ", database.Type(ctx, key).Val(), " ", database.TTL(ctx, key).Val() > 0)] = true
	}
	var sorted []string
	for kind := range kinds {
		sorted = append(sorted, kind)
	}
	sort.Strings(sorted)
	show("keys that are left", sorted)
}

type handler func(context.Context, *asynq.Task) error

// The handler whose task is only noted.
var note handler = func(context.Context, *asynq.Task) error { return nil }

// Runs a server until a number of tasks have been handled, and returns their payloads in order.
// With 0 it stops within the first one.
func serve(concurrency int, queues map[string]int, count int, handle handler) []string {
	var lock sync.Mutex
	var noted []string
	enough := make(chan struct{})
	server := asynq.NewServer(option, asynq.Config{
		Concurrency:              concurrency,
		Queues:                   queues,
		StrictPriority:           true,
		TaskCheckInterval:        20 * time.Millisecond,
		DelayedTaskCheckInterval: 50 * time.Millisecond,
		ShutdownTimeout:          200 * time.Millisecond,
		RetryDelayFunc:           func(int, error, *asynq.Task) time.Duration { return 50 * time.Millisecond },
		GroupGracePeriod:         time.Second,
		GroupMaxSize:             5,
		GroupAggregator:          asynq.GroupAggregatorFunc(joined),
		Logger:                   silent{},
	})
	err := server.Start(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) (err error) {
		defer func() {
			lock.Lock()
			defer lock.Unlock()
			noted = append(noted, string(task.Payload()))
			if len(noted) == count {
				close(enough)
			}
		}()
		if count == 0 {
			close(enough)
		}
		return handle(ctx, task)
	}))
	if err != nil {
		fail("the server does not start: " + err.Error())
	}
	select {
	case <-enough:
	case <-time.After(limit):
		fail(fmt.Sprintf("only %d of %d tasks ran", len(noted), count))
	}
	if count > 0 {
		wait("nothing is active", func() bool { return active(queues) == 0 })
	}
	server.Shutdown()
	lock.Lock()
	defer lock.Unlock()
	return noted
}

func active(queues map[string]int) (count int) {
	for queue := range queues {
		if info, err := inspector.GetQueueInfo(queue); err == nil {
			count += info.Active
		}
	}
	return count
}

// One task of all those of a group.
func joined(group string, tasks []*asynq.Task) *asynq.Task {
	var payloads []string
	for _, task := range tasks {
		payloads = append(payloads, string(task.Payload()))
	}
	sort.Strings(payloads)
	return asynq.NewTask("joined", []byte(fmt.Sprint(group, payloads)))
}

func enqueue(kind, payload string, options ...asynq.Option) *asynq.TaskInfo {
	return value(client.Enqueue(asynq.NewTask(kind, []byte(payload)), options...)).(*asynq.TaskInfo)
}

func counts(queue string) map[string]int {
	info := value(inspector.GetQueueInfo(queue)).(*asynq.QueueInfo)
	all := map[string]int{
		"pending": info.Pending, "active": info.Active, "scheduled": info.Scheduled, "retry": info.Retry,
		"archived": info.Archived, "completed": info.Completed, "aggregating": info.Aggregating,
	}
	for state, count := range all {
		if count == 0 {
			delete(all, state)
		}
	}
	return all
}

func ids(tasks []*asynq.TaskInfo, err error) []string {
	if err != nil {
		return []string{err.Error()}
	}
	found := []string{}
	for _, task := range tasks {
		found = append(found, task.ID)
	}
	return found
}

// What cannot fail here.
func value[T any](it T, err error) any {
	if err != nil {
		fail(err.Error())
	}
	return it
}

// What errors say.
func texts(failures ...error) (texts []string) {
	for _, err := range failures {
		text := "no error"
		if err != nil {
			text = err.Error()
		}
		texts = append(texts, text)
	}
	return texts
}

func second[T any](_ T, err error) error {
	return err
}

func wait(what string, done func() bool) {
	begun := time.Now()
	for !done() {
		if time.Since(begun) > limit {
			fail(what + ": takes too long")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func show(name string, it any) {
	text, err := json.Marshal(it)
	if err != nil {
		fail(err.Error())
	}
	fmt.Printf("%s: %s\n", name, text)
}

func fail(text string) {
	fmt.Fprintln(os.Stderr, text)
	os.Exit(1)
}

const limit = time.Minute

// A logger without a log.
type silent struct{}

func (silent) Debug(...any) {}
func (silent) Info(...any)  {}
func (silent) Warn(...any)  {}
func (silent) Error(...any) {}
func (silent) Fatal(...any) {}
