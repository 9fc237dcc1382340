import io.lettuce.core.*;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.async.RedisAsyncCommands;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.api.push.PushMessage;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.protocol.ProtocolVersion;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.support.caching.CacheAccessor;
import io.lettuce.core.support.caching.CacheFrontend;
import io.lettuce.core.support.caching.ClientSideCaching;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.function.BooleanSupplier;
import java.util.function.Supplier;
import reactor.core.publisher.Flux;

/**
 * What programs in Java do with Lettuce. Prints what was seen, in the same order in each run: java
 * Run.java PORT.
 */
public class Run {
    private static RedisClient client;
    private static StatefulRedisConnection<String, String> connection;
    private static RedisCommands<String, String> redis;

    public static void main(String[] arguments) {
        try {
            run(Integer.parseInt(arguments[0]));
            System.exit(0);
        } catch (Throwable error) {
            // The client's threads would keep the program alive.
            error.printStackTrace();
            System.exit(1);
        }
    }

    private static void run(int port) throws Exception {
        RedisURI uri = RedisURI.create("127.0.0.1", port);
        for (ProtocolVersion version : ProtocolVersion.values()) {
            if (version == ProtocolVersion.RESP2 || version == ProtocolVersion.RESP3) {
                client = RedisClient.create(uri);
                client.setOptions(ClientOptions.builder().protocolVersion(version).build());
                connection = client.connect();
                connection.setTimeout(Duration.ofSeconds(60));
                redis = connection.sync();
                redis.flushall();
                System.out.println("== " + version);
                keys();
                collections();
                scans();
                asynchronous();
                manualFlush();
                reactive();
                transactions();
                scripts();
                messages();
                streams();
                blocking();
                binary();
                if (version == ProtocolVersion.RESP3) {
                    caching();
                }
                reconnects();
                errors();
                connection.close();
                client.shutdown(0, 1, TimeUnit.SECONDS);
            }
        }
    }

    private static void keys() {
        show("set", redis.set("key", "value"));
        show("nx", redis.set("key", "other", SetArgs.Builder.nx().ex(100)));
        show("get old", redis.setGet("key", "new", SetArgs.Builder.px(50_000)));
        show("ttl", between(redis.ttl("key"), 30, 50));
        show("getex", redis.getex("key", GetExArgs.Builder.persist()) + " " + redis.ttl("key"));
        show("expire", redis.expire("key", 100, ExpireArgs.Builder.gt())
            + " " + redis.expire("key", 100, ExpireArgs.Builder.nx()));
        show("getdel", redis.getdel("key") + " " + redis.get("key"));
        show("mset", redis.mset(new TreeMap<>(Map.of("a", "1", "b", "2", "c", "3"))));
        show("mget", redis.mget("a", "missing", "c"));
        show("counters", List.of(redis.incr("a"), redis.incrby("a", 10), redis.incrbyfloat("b", 0.5)));
        show("copied", redis.copy("a", "copied") + " " + redis.unlink("copied", "missing"));
        show("lcs", redis.lcs(LcsArgs.Builder.keys("a", "b")).getMatchString());
        show("bits", List.of(redis.setbit("bits", 5, 1), redis.bitcount("bits"), redis.bitpos("bits", true)));
        show("bitfield", redis.bitfield("field", BitFieldArgs.Builder
            .set(BitFieldArgs.unsigned(8), 0, 250).overflow(BitFieldArgs.OverflowType.FAIL)
            .incrBy(BitFieldArgs.unsigned(8), 0, 10).get(BitFieldArgs.unsigned(4), 0)));
        byte[] dump = redis.dump("a");
        show("restored", redis.restore("restored", dump, RestoreArgs.Builder.ttl(100_000))
            + " " + redis.get("restored"));
        show("type", redis.type("a") + " " + redis.objectEncoding("a"));
    }

    private static void collections() {
        redis.hset("hash", Map.of("a", "1", "b", "2"));
        show("hash", new TreeMap<>(redis.hgetall("hash")) + " " + redis.hmget("hash", "b", "x"));
        show("hincr", redis.hincrby("hash", "a", 4) + " " + redis.hincrbyfloat("hash", "b", 0.25));
        show("hrandfield", new TreeSet<>(redis.hrandfield("hash", 5)));
        show("list", redis.rpush("list", "a", "b", "c", "d", "b") + " " + redis.lpos("list", "b", 2));
        show("lmove", redis.lmove("list", "other", LMoveArgs.Builder.leftRight()));
        show("lmpop", redis.lmpop(LMPopArgs.Builder.right().count(2), "missing", "list"));
        show("left", redis.lrange("list", 0, -1));
        show("sets", redis.sadd("s1", "a", "b") + redis.sadd("s2", "b", "c"));
        show("algebra", redis.sinter("s1", "s2") + " " + new TreeSet<>(redis.sunion("s1", "s2"))
            + " " + redis.sintercard(1, "s1", "s2") + " " + redis.smismember("s1", "a", "c"));
        show("zadd", redis.zadd("z", ScoredValue.just(1, "a"), ScoredValue.just(2.5, "b"),
            ScoredValue.just(Double.POSITIVE_INFINITY, "c")));
        show("zrange", redis.zrangeWithScores("z", 0, -1));
        show("zrangebyscore", redis.zrangebyscore("z", Range.from(Range.Boundary.excluding(1),
            Range.Boundary.unbounded()), Limit.create(0, 1)));
        show("zadd gt", redis.zaddincr("z", ZAddArgs.Builder.xx(), 2.0, "a") + " "
            + redis.zadd("z", ZAddArgs.Builder.gt().ch(), 1.0, "a"));
        show("ranks", redis.zrank("z", "c") + " " + redis.zrevrank("z", "c") + " " + redis.zmscore("z", "a", "x"));
        redis.zadd("z", 100, "c"); // Lettuce cannot read an infinite score in the reply to ZMPOP.
        show("zmpop", redis.zmpop(2, ZPopArgs.Builder.max(), "z"));
        show("zunion", redis.zunionWithScores(ZAggregateArgs.Builder.weights(2, 3).max(), "z", "z"));
        redis.geoadd("geo", 13.361389, 38.115556, "Palermo");
        redis.geoadd("geo", 15.087269, 37.502669, "Catania");
        show("geo", redis.geodist("geo", "Palermo", "Catania", GeoArgs.Unit.km) + " "
            + redis.geosearch("geo", GeoSearch.fromCoordinates(15, 37),
                GeoSearch.byRadius(200, GeoArgs.Unit.km), new GeoArgs().withDistance().asc()));
        show("hyperloglog", redis.pfadd("p", "a", "b", "c") + " " + redis.pfcount("p"));
        show("sort", redis.sort("list", SortArgs.Builder.alpha().desc()));
    }

    private static void scans() {
        for (int n = 0; n < 300; n++) {
            redis.sadd("many", "member" + n);
            redis.set("scan:" + n, "x");
        }
        Set<String> found = new HashSet<>();
        ScanIterator.scan(redis, ScanArgs.Builder.limit(17).match("scan:*")).forEachRemaining(found::add);
        show("scan", found.size());
        Set<String> members = new HashSet<>();
        ScanIterator.sscan(redis, "many", ScanArgs.Builder.limit(7).match("member1*")).forEachRemaining(members::add);
        show("sscan", members.size());
        show("typed", redis.scan(KeyScanArgs.Builder.type("zset").limit(10_000)).getKeys().contains("z"));
    }

    private static void asynchronous() throws Exception {
        RedisAsyncCommands<String, String> async = connection.async();
        List<RedisFuture<Long>> futures = new ArrayList<>();
        for (int n = 0; n < 1000; n++) {
            futures.add(async.incr("async"));
        }
        show("async", LettuceFutures.awaitAll(60, TimeUnit.SECONDS, futures.toArray(new RedisFuture[0]))
            + " " + futures.get(999).get());
        show("composed", async.set("stage", "1").thenCompose(ok -> async.incr("stage"))
            .thenCombine(async.get("async"), (a, b) -> a + " " + b).toCompletableFuture().get(60, TimeUnit.SECONDS));
        show("failed", async.incr("hash").handle((value, error) -> error.getMessage())
            .toCompletableFuture().get(60, TimeUnit.SECONDS));
    }

    /** Commands wait until they are flushed, all at once. */
    private static void manualFlush() throws Exception {
        try (StatefulRedisConnection<String, String> held = client.connect()) {
            held.setAutoFlushCommands(false);
            List<RedisFuture<?>> futures = new ArrayList<>();
            for (int n = 0; n < 500; n++) {
                futures.add(held.async().rpush("flushed", "" + n));
            }
            RedisFuture<String> failing = held.async().hget("flushed", "x");
            show("before", redis.llen("flushed") + " " + futures.get(0).isDone());
            held.flushCommands();
            show("after", LettuceFutures.awaitAll(60, TimeUnit.SECONDS, futures.toArray(new RedisFuture[0]))
                + " " + redis.llen("flushed") + " " + redis.lindex("flushed", 499));
            failing.await(60, TimeUnit.SECONDS);
            show("its error", failing.getError());
        }
    }

    private static void reactive() {
        var reactive = connection.reactive();
        show("flux", Flux.range(0, 100).flatMapSequential(n -> reactive.set("flux" + n, "" + n)
            .then(reactive.get("flux" + n))).collectList().block().subList(95, 100));
        show("streamed", reactive.lrange("flushed", 0, 9).collectList().block());
        show("empty", reactive.get("missing").blockOptional());
        show("recovered", reactive.incr("hash").onErrorReturn(-1L).block());
        show("scanned", ScanStream.scan(reactive, ScanArgs.Builder.limit(20).match("flux*")).distinct().count().block());
    }

    private static void transactions() {
        show("multi", redis.multi());
        redis.set("tx", "1");
        redis.incr("tx");
        redis.hget("tx", "f");
        TransactionResult result = redis.exec();
        show("exec", result.wasDiscarded() + " " + result.get(0) + " " + result.get(1)
            + " " + ((Throwable) result.get(2)).getMessage());
        try (StatefulRedisConnection<String, String> other = client.connect()) {
            redis.watch("tx");
            other.sync().incr("tx");
            redis.multi();
            redis.set("tx", "lost");
            show("watched", redis.exec().wasDiscarded() + " " + redis.get("tx"));
        }
        redis.multi();
        redis.set("tx", "lost");
        show("discard", redis.discard() + " " + redis.get("tx"));
    }

    private static void scripts() {
        String[] keys = {"script", "tx"};
        show("list", redis.<List<Object>>eval("return {KEYS[1], ARGV[1], 7, false, {1, 2}}",
            ScriptOutputType.MULTI, keys, "v"));
        show("status", redis.<String>eval("return redis.call('set', KEYS[1], 'x')", ScriptOutputType.STATUS, keys));
        show("boolean", redis.<Boolean>eval("return redis.call('exists', KEYS[1])", ScriptOutputType.BOOLEAN, keys));
        String digest = redis.scriptLoad("return redis.call('incr', KEYS[2])");
        show("digest", digest + " " + redis.<Long>evalsha(digest, ScriptOutputType.INTEGER, keys));
        show("exists", redis.scriptExists(digest, "0".repeat(40)));
        show("unknown", error(() -> redis.evalsha("0".repeat(40), ScriptOutputType.VALUE)));
        show("fails", error(() -> redis.eval("return redis.call('incr', KEYS[1])", ScriptOutputType.VALUE, keys)));
        show("read only", error(() -> redis.evalReadOnly("return redis.call('set', KEYS[1], 'y')",
            ScriptOutputType.VALUE, keys)));
        show("library", redis.functionLoad("#!lua name=lib\nredis.register_function{function_name='twice', "
            + "callback=function(keys, args) return args[1] * 2 end, flags={'no-writes'}}", true));
        show("function", redis.<Long>fcall("twice", ScriptOutputType.INTEGER, keys, "21"));
        show("listed", redis.functionList("lib").size());
        redis.functionFlush(FlushMode.SYNC);
    }

    private static void messages() {
        List<String> seen = Collections.synchronizedList(new ArrayList<>());
        try (var subscribed = client.connectPubSub()) {
            subscribed.addListener(new RedisPubSubAdapter<String, String>() {
                @Override
                public void message(String channel, String message) {
                    seen.add(channel + " " + message);
                }

                @Override
                public void message(String pattern, String channel, String message) {
                    seen.add(pattern + " " + channel + " " + message);
                }
            });
            subscribed.sync().subscribe("news", "weather");
            subscribed.sync().psubscribe("n*");
            show("subscribers", redis.pubsubNumsub("news", "weather", "none") + " " + redis.pubsubNumpat());
            show("received by", List.of(redis.publish("news", "one"), redis.publish("weather", "rain"),
                redis.publish("none", "x"), redis.publish("nothing", "two")));
            until("five messages", () -> seen.size() == 5);
            show("seen", seen);
            subscribed.sync().unsubscribe("news");
            show("channels", new TreeSet<>(redis.pubsubChannels()) + " " + redis.publish("news", "three"));
            until("six messages", () -> seen.size() == 6);
            subscribed.sync().ssubscribe("shard");
            show("sharded", redis.spublish("shard", "x") + " " + redis.pubsubShardChannels());
        }
    }

    private static void streams() {
        for (int n = 1; n <= 5; n++) {
            redis.xadd("stream", new XAddArgs().id(n + "-1"), Map.of("n", "" + n));
        }
        show("range", redis.xrange("stream", Range.create("2-1", "3-1")));
        show("group", redis.xgroupCreate(XReadArgs.StreamOffset.from("stream", "0"), "group"));
        Consumer<String> one = Consumer.from("group", "one");
        show("read", redis.xreadgroup(one, XReadArgs.Builder.count(3), XReadArgs.StreamOffset.lastConsumed("stream")));
        show("acknowledged", redis.xack("stream", "group", "1-1"));
        show("pending", redis.xpending("stream", "group"));
        show("claimed", redis.xautoclaim("stream", XAutoClaimArgs.Builder.justid(Consumer.from("group", "two"),
            Duration.ZERO, "0").count(10)).getMessages().size());
        show("trimmed", redis.xtrim("stream", XTrimArgs.Builder.maxlen(2)) + " " + redis.xlen("stream"));
        show("nothing new", redis.xread(XReadArgs.Builder.block(50), XReadArgs.StreamOffset.latest("stream")));
        show("consumers", redis.xinfoConsumers("stream", "group").size());
    }

    private static void blocking() throws Exception {
        try (StatefulRedisConnection<String, String> waiting = client.connect()) {
            long begun = System.nanoTime();
            show("nothing", waiting.sync().blpop(0.3, "queue"));
            show("waited", System.nanoTime() - begun >= 250_000_000);
            var popped = waiting.async().blpop(60, "queue1", "queue2");
            until("it waits", () -> idOfBlocked() > 0);
            redis.rpush("queue2", "a", "b");
            show("popped", popped.get(60, TimeUnit.SECONDS));
            var moved = waiting.async().blmove("queue3", "queue4", LMoveArgs.Builder.leftLeft(), 60.0);
            until("it waits", () -> idOfBlocked() > 0);
            redis.rpush("queue3", "c");
            show("moved", moved.get(60, TimeUnit.SECONDS) + " " + redis.lrange("queue4", 0, -1));
            var least = waiting.async().bzpopmin(60, "zqueue");
            until("it waits", () -> idOfBlocked() > 0);
            redis.zadd("zqueue", 2.5, "d");
            show("least", least.get(60, TimeUnit.SECONDS));
            var ended = waiting.async().blpop(60, "queue5");
            until("it waits", () -> idOfBlocked() > 0);
            show("unblocked", redis.clientUnblock(idOfBlocked(), UnblockType.ERROR));
            ended.await(60, TimeUnit.SECONDS);
            show("its error", ended.getError());
        }
    }

    private static void binary() {
        try (var bytes = client.connect(ByteArrayCodec.INSTANCE)) {
            byte[] value = new byte[256];
            for (int n = 0; n < 256; n++) {
                value[n] = (byte) n;
            }
            bytes.sync().set(value, value);
            show("binary", Arrays.equals(bytes.sync().get(value), value) + " " + bytes.sync().strlen(value));
        }
    }

    /** A cache in the program that forgets what another client writes. */
    private static void caching() throws Exception {
        try (StatefulRedisConnection<String, String> tracked = client.connect()) {
            Map<String, String> cache = new ConcurrentHashMap<>();
            List<String> pushes = Collections.synchronizedList(new ArrayList<>());
            tracked.addListener((PushMessage message) -> pushes.add(message.getType()));
            CacheFrontend<String, String> frontend = ClientSideCaching.enable(CacheAccessor.forMap(cache), tracked,
                TrackingArgs.Builder.enabled());
            redis.set("cached", "one");
            show("loaded", frontend.get("cached") + " " + cache);
            show("by a loader", frontend.get("made", () -> "loaded") + " " + redis.get("made"));
            redis.set("cached", "two");
            until("forgotten", () -> !cache.containsKey("cached"));
            show("again", frontend.get("cached") + " " + pushes);
            redis.pexpire("cached", 50);
            until("expired", () -> redis.get("cached") == null && !cache.containsKey("cached"));
            show("expired", frontend.get("cached"));
            redis.set("cached", "three");
            frontend.get("cached");
            redis.flushdb();
            show("prefixes", error(() -> tracked.sync().clientTracking(
                TrackingArgs.Builder.enabled().bcast().prefixes("a", "ab"))));
        }
    }

    /** A connection that is killed comes back, with its database. */
    private static void reconnects() {
        try (StatefulRedisConnection<String, String> killed = client.connect()) {
            killed.sync().select(3);
            killed.sync().clientSetname("before");
            killed.sync().set("here", "3");
            long id = killed.sync().clientId();
            show("killed", redis.clientKill(KillArgs.Builder.id(id)));
            until("it is back", () -> {
                try {
                    return killed.sync().clientId() != id;
                } catch (RedisException error) {
                    return false;
                }
            });
            show("back", killed.sync().get("here"));
            killed.sync().flushdb();
        }
    }

    private static void errors() {
        redis.set("text", "abc");
        show("incr", error(() -> redis.incr("text")));
        show("wrong type", error(() -> redis.lpush("text", "x")));
        show("select", error(() -> redis.select(99)));
        show("no group", error(() -> redis.xack("text", "group", "1-1")));
        show("restore", error(() -> redis.restore("new", 0, new byte[] {1, 2, 3})));
        show("config", error(() -> redis.configSet("no-such-option", "1")));
        show("auth", error(() -> redis.auth("nobody", "secret")));
        show("acl", redis.aclWhoami() + " " + redis.aclSetuser("reader", AclSetuserArgs.Builder.on()
            .addPassword("p").keyPattern("read:*").addCommand(io.lettuce.core.protocol.CommandType.GET)));
        RedisURI uri = RedisURI.builder(RedisURI.create("127.0.0.1", portOf())).withAuthentication("reader", "p").build();
        RedisClient limited = RedisClient.create(uri);
        try (var reader = limited.connect()) {
            show("allowed", reader.sync().get("read:x"));
            show("other key", error(() -> reader.sync().get("other")));
            show("other command", error(() -> reader.sync().set("read:x", "y")));
        }
        limited.shutdown(0, 1, TimeUnit.SECONDS);
        show("removed", redis.aclDeluser("reader"));
    }

    private static int portOf() {
        return Integer.parseInt(redis.configGet("port").get("port"));
    }

    /** The number of the client that waits in a command, or 0. */
    private static long idOfBlocked() {
        return redis.clientList().lines().filter(line -> line.contains(" flags=b "))
            .map(line -> Long.parseLong(line.replaceFirst("^id=(\\d+) .*$", "$1"))).findFirst().orElse(0L);
    }

    private static String error(Supplier<Object> action) {
        try {
            return "no error but " + action.get();
        } catch (RedisException error) {
            return error.getClass().getSimpleName() + ": " + error.getMessage();
        }
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
