import java.io.Serializable;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import org.redisson.Redisson;
import org.redisson.api.*;
import org.redisson.api.options.KeysScanOptions;
import org.redisson.api.geo.GeoUnit;
import org.redisson.api.options.LocalCachedMapOptions;
import org.redisson.api.redisnode.*;
import org.redisson.api.stream.*;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/**
 * Objects of Redisson that many programs share. Prints what was seen, in the same order in each run:
 * java Run.java PORT.
 */
public class Run {
    private static RedissonClient redisson;
    private static RedissonClient other;

    public static void main(String[] arguments) {
        try {
            run(arguments[0]);
            System.exit(0);
        } catch (Throwable error) {
            // The client's threads would keep the program alive.
            error.printStackTrace();
            System.exit(1);
        }
    }

    private static void run(String port) throws Exception {
        redisson = connect(port);
        other = connect(port);
        locks();
        watchdog();
        otherLocks();
        semaphores();
        latch();
        maps();
        mapCache();
        localCache();
        collections();
        queues();
        delayedQueue();
        topics();
        rateLimiter();
        bloomFilter();
        batches();
        buckets();
        transactions();
        scripts();
        streams();
        timeSeries();
        remote();
        keys();
        other.shutdown(0, 1, TimeUnit.SECONDS);
        redisson.shutdown(0, 1, TimeUnit.SECONDS);
    }

    private static RedissonClient connect(String port) {
        Config config = new Config();
        config.setCodec(StringCodec.INSTANCE);
        config.setLockWatchdogTimeout(6000);
        config.useSingleServer().setAddress("redis://127.0.0.1:" + port).setTimeout(60_000)
            .setConnectionPoolSize(16).setConnectionMinimumIdleSize(2);
        return Redisson.create(config);
    }

    /** A lock is held by one thread of one program, as often as it likes. */
    private static void locks() throws Exception {
        RLock lock = redisson.getLock("lock");
        RLock theirs = other.getLock("lock");
        lock.lock();
        lock.lock();
        show("held", List.of(lock.isLocked(), lock.isHeldByCurrentThread(), lock.getHoldCount()));
        show("refused", List.of(theirs.tryLock(), theirs.tryLock(100, TimeUnit.MILLISECONDS)));
        show("not theirs", error(() -> theirs.unlock()));
        lock.unlock();
        show("still held", theirs.tryLock());
        var waiting = CompletableFuture.supplyAsync(() -> {
            theirs.lock(30, TimeUnit.SECONDS);
            boolean held = theirs.isHeldByCurrentThread();
            theirs.unlock();
            return held;
        });
        until("they wait", () -> subscribers("redisson_lock__channel:{lock}") == 1);
        lock.unlock();
        show("given", waiting.get(60, TimeUnit.SECONDS));
        show("free", lock.isLocked());
        theirs.lock(200, TimeUnit.MILLISECONDS);
        until("it expires", () -> !lock.isLocked());
        show("expired", List.of(lock.tryLock(), lock.forceUnlock(), lock.isLocked()));
        AtomicInteger inside = new AtomicInteger();
        AtomicInteger most = new AtomicInteger();
        int[] count = {0};
        inThreads(4, number -> {
            RLock shared = (number % 2 == 0 ? redisson : other).getLock("shared");
            for (int n = 0; n < 10; n++) {
                shared.lock();
                most.accumulateAndGet(inside.incrementAndGet(), Math::max);
                count[0]++;
                inside.decrementAndGet();
                shared.unlock();
            }
        });
        show("one at a time", List.of(most.get(), count[0]));
    }

    /** A lock without an end is prolonged while its program lives. */
    private static void watchdog() throws Exception {
        RLock lock = redisson.getLock("watched");
        lock.lock();
        long begun = System.nanoTime();
        until("it would be over", () -> System.nanoTime() - begun > 7_000_000_000L);
        show("prolonged", List.of(lock.isLocked(), between(lock.remainTimeToLive(), 1, 6000)));
        lock.unlock();
        show("gone", lock.remainTimeToLive());
    }

    private static void otherLocks() throws Exception {
        RReadWriteLock both = redisson.getReadWriteLock("both");
        RReadWriteLock theirs = other.getReadWriteLock("both");
        both.readLock().lock();
        show("two readers", theirs.readLock().tryLock());
        show("no writer", theirs.writeLock().tryLock());
        theirs.readLock().unlock();
        both.readLock().unlock();
        both.writeLock().lock();
        show("writer", List.of(theirs.readLock().tryLock(), both.readLock().tryLock()));
        both.readLock().unlock();
        both.writeLock().unlock();
        RLock fair = redisson.getFairLock("fair");
        List<Integer> order = Collections.synchronizedList(new ArrayList<>());
        fair.lock();
        List<Thread> threads = new ArrayList<>();
        for (int n = 0; n < 4; n++) {
            int number = n;
            Thread thread = new Thread(() -> {
                RLock mine = (number % 2 == 0 ? redisson : other).getFairLock("fair");
                mine.lock();
                order.add(number);
                mine.unlock();
            });
            thread.start();
            threads.add(thread);
            until("it waits", () -> redisson.getDeque("redisson_lock_queue:{fair}").size() == number + 1);
        }
        fair.unlock();
        for (Thread thread : threads) {
            thread.join(60_000);
        }
        show("fair", order);
        RLock all = redisson.getMultiLock(redisson.getLock("m1"), redisson.getLock("m2"));
        show("multi", List.of(all.tryLock(), other.getLock("m1").isLocked(), other.getLock("m2").tryLock()));
        all.unlock();
        RFencedLock fenced = redisson.getFencedLock("fenced");
        show("tokens", List.of(fenced.lockAndGetToken(), fenced.getToken()));
        fenced.unlock();
        show("next token", fenced.lockAndGetToken());
        fenced.unlock();
        RLock spin = redisson.getSpinLock("spin");
        spin.lock();
        show("spin", List.of(spin.isLocked(), other.getSpinLock("spin").tryLock()));
        spin.unlock();
    }

    private static void semaphores() throws Exception {
        RSemaphore semaphore = redisson.getSemaphore("semaphore");
        show("permits", List.of(semaphore.trySetPermits(3), semaphore.trySetPermits(5), semaphore.availablePermits()));
        semaphore.acquire(2);
        show("acquired", List.of(semaphore.tryAcquire(), semaphore.tryAcquire(), semaphore.availablePermits()));
        var waiting = CompletableFuture.supplyAsync(() -> {
            try {
                return other.getSemaphore("semaphore").tryAcquire(2, Duration.ofSeconds(60));
            } catch (InterruptedException interrupted) {
                return false;
            }
        });
        until("they wait", () -> subscribers("redisson_sc:{semaphore}") == 1);
        semaphore.release(2);
        show("given", waiting.get(60, TimeUnit.SECONDS) + " " + semaphore.availablePermits());
        show("drained", List.of(semaphore.drainPermits(), semaphore.availablePermits()));
        RPermitExpirableSemaphore expirable = redisson.getPermitExpirableSemaphore("expirable");
        expirable.trySetPermits(1);
        String permit = expirable.acquire(2, TimeUnit.SECONDS);
        show("expirable", List.of(permit.length(), expirable.tryAcquire() == null));
        String next = other.getPermitExpirableSemaphore("expirable").tryAcquire(60, 60, TimeUnit.SECONDS);
        show("after it", List.of(next != null, expirable.tryRelease(permit), expirable.tryRelease(next)));
    }

    private static void latch() throws Exception {
        RCountDownLatch latch = redisson.getCountDownLatch("latch");
        show("latch", List.of(latch.trySetCount(2), latch.trySetCount(3), latch.getCount()));
        var waiting = CompletableFuture.supplyAsync(() -> {
            try {
                return other.getCountDownLatch("latch").await(60, TimeUnit.SECONDS);
            } catch (InterruptedException interrupted) {
                return false;
            }
        });
        until("they wait", () -> subscribers("redisson_countdownlatch__channel__{latch}") == 1);
        latch.countDown();
        latch.countDown();
        show("opened", waiting.get(60, TimeUnit.SECONDS) + " " + latch.getCount());
    }

    private static void maps() {
        RMap<String, String> map = redisson.getMap("map");
        show("put", Arrays.asList(map.put("a", "1"), map.put("a", "2"), map.putIfAbsent("a", "3"), map.putIfAbsent("b", "4")));
        show("fast", List.of(map.fastPut("c", "5"), map.fastPut("c", "6"), map.fastPutIfAbsent("c", "7")));
        show("replace", Arrays.asList(map.replace("a", "8"), map.replace("x", "9"), map.replace("a", "8", "10")));
        show("compute", List.of(map.compute("a", (key, old) -> old + "!"), map.computeIfAbsent("d", key -> "new"),
            map.merge("b", "+", String::concat)));
        show("removed", Arrays.asList(map.remove("d"), map.remove("b", "wrong"), map.fastRemove("b", "x")));
        show("all", new TreeMap<>(map.readAllMap()) + " " + map.size() + " " + map.containsValue("6"));
        show("added", redisson.getMap("numbers").addAndGet("n", 5) + " " + map.valueSize("a"));
        for (int n = 0; n < 500; n++) {
            map.fastPut("key" + n, "" + n);
        }
        show("iterated", new HashSet<>(map.keySet("key1*", 20)).size());
        RMultimap<String, String> many = redisson.getListMultimap("multimap");
        many.putAll("a", List.of("1", "2", "1"));
        show("multimap", many.getAll("a") + " " + many.size() + " " + many.remove("a", "1") + " " + many.keySize());
    }

    /** A map with entries that expire. */
    private static void mapCache() {
        RMapCache<String, String> cache = redisson.getMapCache("cache");
        show("put", Arrays.asList(cache.put("brief", "1", 2, TimeUnit.SECONDS),
            cache.put("idle", "2", 0, TimeUnit.SECONDS, 100, TimeUnit.SECONDS), cache.put("stays", "3")));
        show("there", cache.get("brief") + " " + cache.size());
        until("it expires", () -> cache.get("brief") == null && cache.keySet().size() == 2);
        show("expired", new TreeSet<>(cache.keySet()) + " " + cache.containsKey("brief"));
        show("left", between(cache.remainTimeToLive("idle"), 1, 100_000) + " " + cache.remainTimeToLive("stays"));
        show("again", cache.putIfAbsent("brief", "4", 100, TimeUnit.SECONDS) + " " + cache.get("brief"));
        show("updated", cache.updateEntryExpiration("stays", 50, TimeUnit.SECONDS, 0, TimeUnit.SECONDS));
        cache.setMaxSize(2);
        cache.put("more", "5");
        show("at most", cache.size());
        RMapCacheNative<String, String> fields = redisson.getMapCacheNative("fields");
        fields.put("a", "1", Duration.ofSeconds(100));
        fields.put("b", "2");
        fields.put("c", "3", Duration.ofMillis(200));
        show("fields", between(fields.remainTimeToLive("a"), 1, 100_000) + " " + fields.remainTimeToLive("b"));
        until("it expires", () -> fields.get("c") == null && fields.readAllMap().size() == 2);
        show("expired", new TreeMap<>(fields.readAllMap()) + " " + fields.clearExpire("a") + " " + fields.remainTimeToLive("a"));
    }

    /** A map that each program keeps a copy of. */
    private static void localCache() {
        RLocalCachedMap<String, String> ours = redisson.getLocalCachedMap(options());
        RLocalCachedMap<String, String> theirs = other.getLocalCachedMap(options());
        ours.fastPut("a", "1");
        // What was said of the write may come after the first read.
        until("it is kept", () -> "1".equals(theirs.get("a")) && theirs.getCachedMap().size() == 1);
        show("kept", theirs.get("a"));
        ours.fastPut("a", "2");
        until("they hear", () -> !"1".equals(theirs.getCachedMap().get("a")));
        show("changed", theirs.get("a") + " " + ours.getCachedMap());
        ours.clearLocalCache();
        until("all is forgotten", () -> theirs.getCachedMap().isEmpty());
        show("cleared", theirs.getCachedMap() + " " + theirs.get("a"));
        ours.destroy();
        theirs.destroy();
    }

    private static LocalCachedMapOptions<String, String> options() {
        return LocalCachedMapOptions.<String, String>name("local")
            .syncStrategy(LocalCachedMapOptions.SyncStrategy.INVALIDATE);
    }

    private static void collections() {
        RList<String> list = redisson.getList("list");
        list.addAll(List.of("a", "b", "c", "b"));
        list.add(1, "x");
        show("list", list + " " + list.indexOf("b") + " " + list.lastIndexOf("b") + " " + list.remove(0));
        list.set(0, "y");
        list.trim(0, 2);
        show("then", list.readAll() + " " + list.subList(1, 3) + " " + list.addBefore("b", "z") + " " + list.get(-1));
        RSet<String> set = redisson.getSet("set");
        set.addAll(List.of("a", "b", "c"));
        redisson.getSet("set2").addAll(List.of("b", "c", "d"));
        show("set", new TreeSet<>(set.readIntersection("set2")) + " " + set.add("a") + " " + set.tryAdd("e", "a")
            + " " + new TreeSet<>(set.readUnion("set2")) + " " + set.countIntersection("set2"));
        RScoredSortedSet<String> scored = redisson.getScoredSortedSet("scored");
        scored.addAll(Map.of("a", 1.0, "b", 2.0, "c", 3.0));
        show("scored", scored.readAll() + " " + scored.addScore("a", 5) + " " + scored.rank("a") + " "
            + scored.valueRange(2, true, 3, false) + " " + scored.pollLast() + " " + scored.firstScore());
        show("entries", scored.entryRange(0, -1));
        RSortedSet<String> sorted = redisson.getSortedSet("sorted");
        for (String value : List.of("c", "a", "b")) {
            sorted.add(value);
        }
        show("sorted", sorted.readAll() + " " + sorted.first() + " " + sorted.add("a"));
        RLexSortedSet lexical = redisson.getLexSortedSet("lexical");
        lexical.addAll(List.of("d", "a", "c"));
        show("lexical", lexical.range("a", false, "d", true));
        RSetCache<String> expiring = redisson.getSetCache("set cache");
        expiring.add("brief", 200, TimeUnit.MILLISECONDS);
        expiring.add("stays");
        until("it expires", () -> expiring.readAll().size() == 1);
        show("set cache", expiring.readAll());
        RGeo<String> geo = redisson.getGeo("geo");
        geo.add(13.361389, 38.115556, "Palermo");
        geo.add(15.087269, 37.502669, "Catania");
        show("geo", geo.dist("Palermo", "Catania", GeoUnit.KILOMETERS));
        RBitSet bits = redisson.getBitSet("bits");
        bits.set(3, 10);
        show("bits", bits.cardinality() + " " + bits.get(5) + " " + bits.length() + " " + bits.toString().length());
        RHyperLogLog<String> log = redisson.getHyperLogLog("log");
        log.addAll(List.of("a", "b", "a"));
        show("hyperloglog", log.count());
        RRingBuffer<String> ring = redisson.getRingBuffer("ring");
        ring.trySetCapacity(3);
        ring.addAll(List.of("1", "2", "3", "4", "5"));
        show("ring", ring.readAll() + " " + ring.remainingCapacity());
    }

    private static void queues() throws Exception {
        RBlockingQueue<String> queue = redisson.getBlockingQueue("queue");
        var waiting = CompletableFuture.supplyAsync(() -> {
            try {
                return other.<String>getBlockingQueue("queue").poll(60, TimeUnit.SECONDS);
            } catch (InterruptedException interrupted) {
                return "interrupted";
            }
        });
        until("they wait", () -> waiters() == 1);
        queue.add("first");
        show("taken", waiting.get(60, TimeUnit.SECONDS));
        show("nothing", queue.poll(200, TimeUnit.MILLISECONDS));
        queue.addAll(List.of("a", "b", "c"));
        show("moved", queue.pollLastAndOfferFirstTo("queue2", 1, TimeUnit.SECONDS) + " " + queue.readAll());
        show("from any", queue.pollFromAny(1, TimeUnit.SECONDS, "queue2") + " " + queue.poll(5));
        RPriorityQueue<String> priorities = redisson.getPriorityQueue("priorities");
        for (String value : List.of("c", "a", "b")) {
            priorities.add(value);
        }
        show("priorities", priorities.poll() + " " + priorities.peek() + " " + priorities.size());
        RBoundedBlockingQueue<String> bounded = redisson.getBoundedBlockingQueue("bounded");
        bounded.trySetCapacity(2);
        show("bounded", List.of(bounded.offer("1"), bounded.offer("2"), bounded.offer("3"), bounded.remainingCapacity()));
        bounded.poll();
        show("room", bounded.offer("4", 1, TimeUnit.SECONDS));
    }

    /** What is offered with a delay arrives in the order of the times. */
    private static void delayedQueue() throws Exception {
        RBlockingQueue<String> arrived = redisson.getBlockingQueue("arrived");
        RDelayedQueue<String> delayed = redisson.getDelayedQueue(arrived);
        long begun = System.nanoTime();
        delayed.offer("later", 3000, TimeUnit.MILLISECONDS);
        delayed.offer("soon", 2000, TimeUnit.MILLISECONDS);
        delayed.offer("never", 1, TimeUnit.HOURS);
        show("delayed", delayed.size());
        show("arrived", arrived.poll(60, TimeUnit.SECONDS) + " " + arrived.poll(60, TimeUnit.SECONDS)
            + " " + (System.nanoTime() - begun >= 2_900_000_000L));
        show("removed", delayed.remove("never") + " " + delayed.size());
        delayed.destroy();
    }

    private static void topics() {
        List<String> seen = Collections.synchronizedList(new ArrayList<>());
        RTopic topic = redisson.getTopic("topic");
        int listener = topic.addListener(String.class, (channel, message) -> seen.add(channel + " " + message));
        RPatternTopic pattern = redisson.getPatternTopic("top*");
        List<String> matched = Collections.synchronizedList(new ArrayList<>());
        pattern.addListener(String.class, (form, channel, message) -> matched.add(form + " " + channel + " " + message));
        show("received by", List.of(other.getTopic("topic").publish("one"), other.getTopic("top").publish("two"),
            other.getTopic("none").publish("three")));
        until("all are seen", () -> seen.size() == 1 && matched.size() == 2);
        Collections.sort(matched);
        show("seen", seen + " " + matched);
        topic.removeListener(listener);
        until("it is heard no more", () -> subscribers("topic") == 0);
        show("then", other.getTopic("topic").publish("four"));
        pattern.removeAllListeners();
        RShardedTopic sharded = redisson.getShardedTopic("sharded");
        sharded.addListener(String.class, (channel, message) -> seen.add(channel + " " + message));
        show("sharded", other.getShardedTopic("sharded").publish("five"));
        until("it is seen", () -> seen.size() == 2);
        show("seen", seen);
        sharded.removeAllListeners();
        RReliableTopic reliable = redisson.getReliableTopic("reliable");
        List<String> kept = Collections.synchronizedList(new ArrayList<>());
        reliable.addListener(String.class, (channel, message) -> kept.add(message));
        for (int n = 0; n < 5; n++) {
            other.getReliableTopic("reliable").publish("" + n);
        }
        until("all are seen", () -> kept.size() == 5);
        show("reliable", kept + " " + reliable.countSubscribers());
        reliable.removeAllListeners();
    }

    private static void rateLimiter() {
        RRateLimiter limiter = redisson.getRateLimiter("limiter");
        show("rate", List.of(limiter.trySetRate(RateType.OVERALL, 3, Duration.ofHours(1)),
            limiter.trySetRate(RateType.OVERALL, 9, Duration.ofHours(1))));
        show("acquired", List.of(limiter.tryAcquire(2), other.getRateLimiter("limiter").tryAcquire(), limiter.tryAcquire()));
        show("available", limiter.availablePermits() + " " + limiter.getConfig().getRate());
        RRateLimiter quick = redisson.getRateLimiter("quick");
        quick.trySetRate(RateType.OVERALL, 2, Duration.ofMillis(300));
        long begun = System.nanoTime();
        for (int n = 0; n < 6; n++) {
            quick.acquire();
        }
        show("waited", System.nanoTime() - begun >= 550_000_000);
    }

    private static void bloomFilter() {
        RBloomFilter<String> filter = redisson.getBloomFilter("filter");
        show("filter", List.of(filter.tryInit(1000, 0.01),
            other.getBloomFilter("filter").tryInit(5, 0.5), filter.getSize(), filter.getHashIterations()));
        int added = 0;
        for (int n = 0; n < 200; n++) {
            added += filter.add("in" + n) ? 1 : 0;
        }
        int found = 0;
        int wrong = 0;
        for (int n = 0; n < 200; n++) {
            found += filter.contains("in" + n) ? 1 : 0;
            wrong += filter.contains("out" + n) ? 1 : 0;
        }
        show("contains", List.of(added, found, wrong, filter.count()));
    }

    private static void batches() {
        RBatch batch = redisson.createBatch();
        for (int n = 0; n < 500; n++) {
            batch.getMap("batched").fastPutAsync("" + n, "" + n);
            batch.getAtomicLong("batches").incrementAndGetAsync();
        }
        BatchResult<?> result = batch.execute();
        show("batch", result.getResponses().size() + " " + result.getResponses().get(999));
        RBatch atomic = redisson.createBatch(BatchOptions.defaults().executionMode(BatchOptions.ExecutionMode.IN_MEMORY_ATOMIC));
        atomic.getBucket("a").setAsync("1");
        atomic.getBucket("a").getAsync();
        show("atomic", atomic.execute().getResponses());
        RBatch failing = redisson.createBatch();
        failing.getBucket("a").setAsync("text");
        failing.getAtomicLong("a").incrementAndGetAsync();
        show("fails", error(() -> failing.execute()).replaceAll("channel: .*$", "CHANNEL"));
        RBatch skipped = redisson.createBatch(BatchOptions.defaults().skipResult());
        skipped.getBucket("skipped").setAsync("yes");
        skipped.execute();
        show("skipped", redisson.getBucket("skipped").get());
    }

    private static void buckets() {
        RBucket<String> bucket = redisson.getBucket("bucket");
        show("bucket", Arrays.asList(bucket.setIfAbsent("one"), bucket.setIfAbsent("two"), bucket.getAndSet("three"),
            bucket.compareAndSet("three", "four"), bucket.compareAndSet("three", "five"), bucket.setIfExists("six")));
        bucket.expire(Duration.ofSeconds(100));
        show("expires", between(bucket.remainTimeToLive(), 1, 100_000) + " " + bucket.clearExpire() + " " + bucket.remainTimeToLive());
        show("taken", bucket.getAndDelete() + " " + bucket.isExists());
        redisson.getBuckets().set(new TreeMap<>(Map.of("b1", "1", "b2", "2")));
        show("buckets", new TreeMap<>(redisson.getBuckets().get("b1", "b2", "b3")) + " "
            + redisson.getBuckets().trySet(Map.of("b2", "x", "b4", "y")));
        RAtomicLong number = redisson.getAtomicLong("number");
        show("long", List.of(number.incrementAndGet(), number.getAndAdd(5), number.compareAndSet(6, 10), number.get()));
        RAtomicDouble fraction = redisson.getAtomicDouble("fraction");
        show("double", List.of(fraction.addAndGet(0.5), fraction.getAndIncrement(), fraction.get()));
        RLongAdder adder = redisson.getLongAdder("adder");
        RLongAdder theirs = other.getLongAdder("adder");
        adder.add(5);
        theirs.add(7);
        show("adder", adder.sum());
        adder.destroy();
        theirs.destroy();
        RIdGenerator ids = redisson.getIdGenerator("ids");
        show("ids", List.of(ids.tryInit(100, 10), ids.nextId(), ids.nextId(), other.getIdGenerator("ids").nextId()));
        RBinaryStream stream = redisson.getBinaryStream("stream");
        stream.set(new byte[] {1, 2, 3});
        show("binary", stream.size() + " " + Arrays.toString(stream.get()));
    }

    private static void transactions() {
        RTransaction transaction = redisson.createTransaction(TransactionOptions.defaults());
        RMap<String, String> map = transaction.getMap("transacted");
        map.put("a", "1");
        transaction.getBucket("transacted bucket").set("x");
        show("before", redisson.getMap("transacted").size() + " " + map.get("a"));
        transaction.commit();
        show("committed", redisson.getMap("transacted").get("a") + " " + redisson.getBucket("transacted bucket").get());
        RTransaction undone = redisson.createTransaction(TransactionOptions.defaults());
        undone.<String, String>getMap("transacted").put("a", "2");
        undone.rollback();
        show("rolled back", redisson.getMap("transacted").get("a"));
    }

    private static void scripts() {
        RScript script = redisson.getScript();
        show("script", script.<List<Object>>eval(RScript.Mode.READ_WRITE, "return {KEYS[1], ARGV[1], 7}",
            RScript.ReturnType.LIST, List.of("k"), "v"));
        String digest = script.scriptLoad("return redis.call('incr', KEYS[1])");
        show("digest", digest + " " + script.evalSha(RScript.Mode.READ_WRITE, digest, RScript.ReturnType.LONG, List.of("scripted")));
        show("exists", script.scriptExists(digest, "0".repeat(40)));
        show("fails", error(() -> script.eval(RScript.Mode.READ_WRITE, "return redis.error_reply('MINE own')",
            RScript.ReturnType.VALUE)).replaceAll("channel: .*$", "CHANNEL"));
        RFunction function = redisson.getFunction();
        function.loadAndReplace("lib", "redis.register_function('twice', function(keys, args) return args[1] * 2 end)");
        show("function", function.<Long>call(FunctionMode.WRITE, "twice", FunctionResult.LONG, List.of(), "21"));
        function.delete("lib");
    }

    private static void streams() {
        RStream<String, String> stream = redisson.getStream("events");
        for (int n = 1; n <= 4; n++) {
            stream.add(new StreamMessageId(n, 1), StreamAddArgs.entry("n", "" + n));
        }
        stream.createGroup(StreamCreateGroupArgs.name("group").id(StreamMessageId.ALL));
        show("read", stream.readGroup("group", "one", StreamReadGroupArgs.neverDelivered().count(3)));
        show("acknowledged", stream.ack("group", new StreamMessageId(1, 1)) + " " + stream.getPendingInfo("group").getTotal());
        show("claimed", stream.fastClaim("group", "two", 0, TimeUnit.SECONDS, new StreamMessageId(2, 1)));
        show("range", stream.range(StreamMessageId.MIN, new StreamMessageId(2, 9)) + " " + stream.size());
        show("groups", stream.listGroups().size() + " " + stream.listConsumers("group").size());
    }

    private static void timeSeries() {
        RTimeSeries<String, String> series = redisson.getTimeSeries("series");
        for (int n = 1; n <= 5; n++) {
            series.add(n * 100, "value" + n, "label" + n);
        }
        show("series", series.size() + " " + series.get(300) + " " + series.range(200, 400) + " " + series.last());
        show("removed", series.removeRange(100, 250) + " " + series.firstTimestamp());
        series.destroy();
    }

    /** A service of another program. */
    private static void remote() throws Exception {
        Config config = new Config(redisson.getConfig());
        config.setCodec(new org.redisson.codec.SerializationCodec());
        RedissonClient node = Redisson.create(config);
        RRemoteService service = node.getRemoteService("remote");
        service.register(Doubling.class, new Doubles());
        Doubling doubling = node.getRemoteService("remote").get(Doubling.class,
            RemoteInvocationOptions.defaults().expectAckWithin(60, TimeUnit.SECONDS)
                .expectResultWithin(60, TimeUnit.SECONDS));
        show("remote", doubling.twice(21) + " " + error(() -> doubling.twice(-1)));
        until("the worker is free", () -> service.getFreeWorkers(Doubling.class) == 1);
        service.deregister(Doubling.class);
        node.shutdown(0, 1, TimeUnit.SECONDS);
    }

    /** What can be called from another program. */
    public interface Doubling extends Serializable {
        int twice(int number);
    }

    /** What it does there. */
    public static final class Doubles implements Doubling {
        @Override
        public int twice(int number) {
            if (number < 0) {
                throw new IllegalArgumentException("negative");
            }
            return 2 * number;
        }
    }

    private static void keys() {
        RKeys keys = redisson.getKeys();
        Set<String> found = new TreeSet<>();
        keys.getKeys(KeysScanOptions.defaults().pattern("s*").chunkSize(5)).forEach(found::add);
        show("keys", found);
        show("type", keys.getType("map") + " " + keys.countExists("map", "list", "missing"));
        show("deleted", keys.deleteByPattern("s*") + " " + keys.delete("list", "missing"));
        keys.rename("map", "renamed");
        show("renamed", redisson.getMap("renamed").size() + " " + keys.expire("renamed", 100, TimeUnit.SECONDS));
        Set<String> left = new TreeSet<>();
        keys.getKeys().forEach(left::add);
        left.removeIf(key -> key.contains("latch")); // They are there for some seconds.
        show("left", left);
    }

    private static long subscribers(String channel) {
        return redisson.getTopic(channel).countSubscribers();
    }

    /** How many clients wait in a command. */
    private static int waiters() {
        RedisSingle server = redisson.getRedisNodes(RedisNodes.SINGLE);
        return Integer.parseInt(server.getInstance().info(RedisNode.InfoSection.CLIENTS).get("blocked_clients"));
    }

    private interface Work {
        void run(int number);
    }

    private static void inThreads(int count, Work work) throws Exception {
        List<Thread> threads = new ArrayList<>();
        for (int n = 0; n < count; n++) {
            int number = n;
            threads.add(new Thread(() -> work.run(number)));
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join(60_000);
        }
    }

    private static String error(Callable<Object> action) {
        try {
            return "no error but " + action.call();
        } catch (Exception error) {
            return error.getClass().getSimpleName() + ": " + error.getMessage()
                .replaceAll("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID").replaceAll("thread-id: \\d+", "THREAD");
        }
    }

    private static String error(Runnable action) {
        return error(() -> {
            action.run();
            return null;
        });
    }

    private static Object between(long value, long low, long high) {
        return low <= value && value <= high ? "between " + low + " and " + high : value;
    }

    private static void until(String what, BooleanSupplier done) {
        long begun = System.nanoTime();
        while (!done.getAsBoolean()) {
            if (System.nanoTime() - begun > 60_000_000_000L) {
                throw new IllegalStateException(what + ": takes too long");
            }
            try {
                Thread.sleep(5);
            } catch (InterruptedException interrupted) {
                throw new IllegalStateException(interrupted);
            }
        }
    }

    private static void show(String name, Object value) {
        System.out.println(name + ": " + value);
    }
}
