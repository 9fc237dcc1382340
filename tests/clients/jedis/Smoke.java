import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.Response;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.resps.ScanResult;

/** What a Java program does with Jedis. Usage: Smoke PORT */
public final class Smoke {
    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(arguments[0]);
        try (Jedis jedis = new Jedis("127.0.0.1", port)) {
            jedis.flushAll();
            strings(jedis);
            keys(jedis);
            transactions(jedis);
            pipelines(jedis);
            errors(jedis);
        }
        pool(port);
        System.out.println("ok");
    }

    private static void strings(Jedis jedis) {
        same("OK", jedis.set("k", "v"));
        same("v", jedis.get("k"));
        same(null, jedis.set("k", "w", new SetParams().nx()));
        same("OK", jedis.set("k", "w", new SetParams().xx().ex(100)));
        same(true, jedis.ttl("k") > 0);
        same("w", jedis.setGet("k", "x"));
        same("OK", jedis.mset("a", "1", "b", "2"));
        same("[1, 2, null]", jedis.mget("a", "b", "missing").toString());
        same(1L, jedis.incr("n"));
        same(2.5, jedis.incrByFloat("n", 1.5));
        same(2L, jedis.append("s", "ab"));
        same("b", jedis.getrange("s", 1, -1));
        same(false, jedis.setbit("bits", 3, true));
        same(1L, jedis.bitcount("bits"));
        same("x", jedis.getDel("k"));
        byte[] all = new byte[256];
        for (int i = 0; i < all.length; i++) {
            all[i] = (byte) i;
        }
        jedis.set("binary".getBytes(), all);
        same(true, java.util.Arrays.equals(all, jedis.get("binary".getBytes())));
    }

    private static void keys(Jedis jedis) {
        for (int i = 0; i < 300; i++) {
            jedis.set("scan:" + i, "v");
        }
        List<String> found = new ArrayList<>();
        String cursor = ScanParams.SCAN_POINTER_START;
        do {
            ScanResult<String> page = jedis.scan(cursor, new ScanParams().match("scan:*").count(20));
            found.addAll(page.getResult());
            cursor = page.getCursor();
        } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
        same(300L, found.stream().distinct().count());
        same(1L, jedis.expire("scan:1", 100));
        same(1L, jedis.persist("scan:1"));
        same("OK", jedis.rename("scan:1", "renamed"));
        same(true, jedis.exists("renamed"));
        same("string", jedis.type("renamed"));
        byte[] dump = jedis.dump("renamed");
        same("OK", jedis.restore("restored", 0, dump));
        same("v", jedis.get("restored"));
        same(2L, jedis.unlink("renamed", "restored"));
    }

    private static void transactions(Jedis jedis) {
        Transaction transaction = jedis.multi();
        Response<String> set = transaction.set("t", "1");
        Response<Long> incremented = transaction.incr("t");
        transaction.exec();
        same("OK", set.get());
        same(2L, incremented.get());
        jedis.watch("t");
        jedis.set("t", "9");
        Transaction spoilt = jedis.multi();
        spoilt.set("t", "10");
        same(null, spoilt.exec());
        same("9", jedis.get("t"));
    }

    private static void pipelines(Jedis jedis) {
        Pipeline pipeline = jedis.pipelined();
        List<Response<Long>> counts = new ArrayList<>();
        for (int i = 0; i < 1000; i++) {
            counts.add(pipeline.incr("pipelined"));
        }
        pipeline.sync();
        for (int i = 0; i < 1000; i++) {
            same(i + 1L, counts.get(i).get());
        }
    }

    private static void errors(Jedis jedis) {
        jedis.set("text", "abc");
        try {
            jedis.incr("text");
        } catch (JedisDataException error) {
            same("ERR value is not an integer or out of range", error.getMessage());
            return;
        }
        throw new AssertionError("an error was expected");
    }

    private static void pool(int port) throws InterruptedException {
        try (JedisPooled pool = new JedisPooled("127.0.0.1", port)) {
            List<Thread> threads = new ArrayList<>();
            for (int i = 0; i < 4; i++) {
                Thread thread = new Thread(() -> {
                    for (int n = 0; n < 500; n++) {
                        pool.incr("shared");
                    }
                });
                thread.start();
                threads.add(thread);
            }
            for (Thread thread : threads) {
                thread.join();
            }
            same("2000", pool.get("shared"));
        }
    }

    private static void same(Object expected, Object actual) {
        if (!Objects.equals(expected, actual)) {
            throw new AssertionError("expected " + expected + ", got " + actual);
        }
    }
}
