// What a Go program does with go-redis' failover client while the primary fails. Usage: program
// NAME SENTINEL_PORT...
//
// Says "going" when it has written for a while, "again" when it writes once more behind a failure,
// and "ok" when it has read what it wrote.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	writes = 100
	limit  = time.Minute
)

func main() {
	var sentinels []string
	for _, port := range os.Args[2:] {
		sentinels = append(sentinels, "127.0.0.1:"+port)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName:    os.Args[1],
		SentinelAddrs: sentinels,
		// A failure must be seen here.
		MaxRetries: -1,
	})
	failed := false
	keepTrying := func(action func() (string, error)) string {
		for ctx.Err() == nil {
			result, err := action()
			if err == nil {
				return result
			}
			failed = true
			time.Sleep(10 * time.Millisecond)
		}
		panic("it does not come back, or no failure came")
	}
	count, wanted, isBack := 0, -1, false
	for count != wanted {
		value := strconv.Itoa(count + 1)
		same("OK", keepTrying(func() (string, error) {
			return client.Set(ctx, "go-redis", value, 0).Result()
		}))
		count++
		if count == writes {
			fmt.Println("going")
		}
		if failed && !isBack {
			isBack, wanted = true, count+writes
			fmt.Println("again")
		}
	}
	same(strconv.Itoa(count), keepTrying(func() (string, error) {
		return client.Get(ctx, "go-redis").Result()
	}))
	fmt.Println("ok")
}

func same(expected, found string) {
	if expected != found {
		panic("expected " + expected + ", found " + found)
	}
}
