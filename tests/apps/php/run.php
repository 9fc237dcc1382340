<?php
// What sites in PHP do with php-redis: sessions, and the commands of its client. Prints what was
// seen, in the same order in each run: php run.php PORT.

declare(strict_types=1);

$port = (int) $argv[1];

sessions($port);
locked_sessions($port);
foreach (['none', 'php', 'json', 'igbinary'] as $serializer) {
    values($port, $serializer);
}
pipelines($port);
transactions($port);
scans($port);
collections($port);
streams($port);
scripts($port);
messages($port);
arrays($port);
errors($port);

// A session is kept from one request to the next, and expires.
function sessions(int $port): void
{
    $value = '{"name":"Ada","roles":["admin"],"n":1.5}';
    show('write', request($port, 'one', 'write', $value));
    show('read', request($port, 'one', 'read'));
    show('of another', request($port, 'two', 'read'));
    $redis = connect($port);
    show('keys', sorted($redis->keys('*')));
    show('stored', $redis->get('PHPREDIS_SESSION:one'));
    show('expires', between($redis->ttl('PHPREDIS_SESSION:one'), 1300, 1440));
    $redis->expire('PHPREDIS_SESSION:one', 10);
    request($port, 'one', 'write', '2');
    show('expires later', between($redis->ttl('PHPREDIS_SESSION:one'), 1300, 1440));
    $new = request($port, 'one', 'new id');
    $old = $redis->exists('PHPREDIS_SESSION:one');
    show('new id', [$new !== 'one', request($port, $new, 'read'), $old]);
    show('destroyed', [request($port, $new, 'destroy'), request($port, $new, 'read')]);
    $settings = ['session.save_path' => "tcp://127.0.0.1:$port?prefix=app:&database=3"];
    show('in a database', request($port, 'three', 'write', '"x"', $settings));
    $redis->select(3);
    show('its keys', $redis->keys('*'));
    $redis->flushAll();
}

// Requests of one user wait for each other where locking is on.
function locked_sessions(int $port): void
{
    $redis = connect($port);
    $locking = [
        'redis.session.locking_enabled' => '1',
        'redis.session.lock_retries' => '-1',
        'redis.session.lock_wait_time' => '2000',
        'redis.session.lock_expire' => '60',
    ];
    $redis->flushAll();
    $counting = array_map(
        fn () => start($port, 'counter', 'count', '25', $locking),
        range(1, 4),
    );
    show('requests', array_map('finish', $counting));
    show('counted', request($port, 'counter', 'read', null, $locking));
    $holder = start($port, 'held', 'hold', null, $locking);
    fgets($holder['output']);
    $lock = 'PHPREDIS_SESSION:held_LOCK';
    show('lock', [$redis->exists($lock), between($redis->ttl($lock), 1, 60)]);
    $impatient = ['redis.session.lock_retries' => '2'] + $locking;
    show('refused', request($port, 'held', 'start', null, $impatient));
    $waiting = start($port, 'held', 'read', null, $locking);
    fclose($holder['input']);
    show('holder', finish($holder));
    show('waited', finish($waiting));
    show('unlocked', $redis->exists($lock));
}

// Each serializer gives back what it was given.
function values(int $port, string $name): void
{
    $redis = connect($port);
    $redis->flushAll();
    $redis->setOption(Redis::OPT_SERIALIZER, constant('Redis::SERIALIZER_' . strtoupper($name)));
    $redis->setOption(Redis::OPT_PREFIX, "$name:");
    $all = ['text' => "a\0b", 'integer' => 7, 'float' => 1.5, 'true' => true];
    if ($name !== 'none') {
        $all += ['null' => null, 'list' => [1, [2, 3]], 'map' => ['a' => ['b' => false]]];
    }
    foreach ($all as $key => $value) {
        $redis->set($key, $value);
    }
    foreach ($all as $key => $value) {
        show("$name $key", $redis->get($key));
    }
    show("$name mget", $redis->mGet(['integer', 'missing', 'text']));
    $redis->hMSet('hash', ['a' => $all['float'], 'b' => $all['text']]);
    show("$name hash", [$redis->hGetAll('hash'), $redis->hMGet('hash', ['a', 'x'])]);
    $redis->rPush('items', ...array_values($all));
    show("$name list", $redis->lRange('items', 0, -1));
    $redis->sAdd('set', 'x', 'y');
    show("$name set", [sorted($redis->sMembers('set')), $redis->sIsMember('set', 'y')]);
    $redis->zAdd('zset', 1, 'x', 2.5, 'y');
    show("$name zset", [$redis->zRange('zset', 0, -1, true), $redis->zScore('zset', 'y')]);
    show("$name options", [
        $redis->set('once', 'a', ['nx', 'ex' => 100]),
        $redis->set('once', 'b', ['nx']),
        $redis->set('once', 'c', ['xx', 'px' => 50000]),
        between($redis->ttl('once'), 30, 50),
        $redis->getSet('once', 'd'),
        $redis->ttl('once'),
    ]);
}

function pipelines(int $port): void
{
    $redis = connect($port);
    $redis->flushAll();
    $pipe = $redis->multi(Redis::PIPELINE);
    for ($i = 0; $i < 1000; $i++) {
        $pipe->set("key$i", $i)->incrBy("key$i", 2);
    }
    $replies = $pipe->exec();
    show('pipeline', [count($replies), array_slice($replies, -4)]);
    $pipe = $redis->pipeline()->get('key5')->lPush('key5', 'x')->get('key6');
    show('error within', $pipe->exec());
    show('its text', rtrim($redis->getLastError(), "\0"));
    show('sum', array_sum($redis->mGet(array_map(fn ($i) => "key$i", range(0, 999)))));
}

function transactions(int $port): void
{
    $redis = connect($port);
    $other = connect($port);
    $redis->set('a', 1);
    $redis->watch('a');
    show('executed', $redis->multi()->incr('a')->get('a')->hSet('h', 'f', 'v')->exec());
    $redis->watch('a');
    $other->set('a', 10);
    show('watched', $redis->multi()->incr('a')->exec());
    $redis->multi()->incr('a');
    show('discarded', [$redis->discard(), $redis->get('a')]);
    show('error within', $redis->multi()->incr('h')->incr('a')->exec());
}

// All keys are found, whatever the size of a step.
function scans(int $port): void
{
    $redis = connect($port);
    $redis->flushAll();
    $redis->setOption(Redis::OPT_SCAN, Redis::SCAN_RETRY);
    $pipe = $redis->pipeline();
    for ($i = 0; $i < 500; $i++) {
        $pipe->set("key:$i", 1)->hSet('hash', "field$i", $i);
        $pipe->sAdd('set', "m$i")->zAdd('zset', $i, "z$i");
    }
    $pipe->exec();
    foreach ([['scan', null, 'key:1*'], ['hScan', 'hash', 'field1*'], ['sScan', 'set', 'm1*'],
        ['zScan', 'zset', 'z1*']] as [$command, $key, $pattern]) {
        $found = [];
        $cursor = null;
        do {
            $step = $key === null
                ? $redis->scan($cursor, $pattern, 30)
                : $redis->$command($key, $cursor, $pattern, 30);
            foreach ($step ?: [] as $name => $value) {
                $found[$command === 'scan' || $command === 'sScan' ? $value : $name] = true;
            }
        } while ($cursor !== 0);
        show($command, count($found));
    }
}

function collections(int $port): void
{
    $redis = connect($port);
    $redis->flushAll();
    $redis->rPush('list', 'a', 'b', 'c', 'd');
    show('list', [
        $redis->lPop('list'), $redis->rPopLPush('list', 'other'), $redis->lRem('list', 'b', 0),
        $redis->lInsert('list', Redis::BEFORE, 'c', 'x'), $redis->lRange('list', 0, -1),
        $redis->lIndex('list', 5), $redis->blPop(['empty', 'list'], 1), $redis->blPop(['empty'], 1),
    ]);
    $redis->zAdd('zset', ['NX'], 1, 'a', 2, 'b', 3, 'c');
    show('zset', [
        $redis->zRangeByScore('zset', '(1', '+inf', ['withscores' => true, 'limit' => [0, 1]]),
        $redis->zIncrBy('zset', 1.5, 'a'), $redis->zRevRank('zset', 'a'), $redis->zPopMax('zset'),
        $redis->zUnionStore('union', ['zset', 'zset'], [1, 2], 'SUM'),
        $redis->zRange('union', 0, -1, true), $redis->zRangeByLex('zset', '-', '+'),
    ]);
    $redis->geoAdd('geo', 13.361389, 38.115556, 'Palermo', 15.087269, 37.502669, 'Catania');
    show('geo', [
        $redis->geoDist('geo', 'Palermo', 'Catania', 'km'),
        $redis->geoRadius('geo', 15.0, 37.0, 200, 'km', ['WITHDIST', 'ASC']),
        $redis->geoHash('geo', 'Palermo', 'Nowhere'),
    ]);
    show('hyperloglog', [$redis->pfAdd('p', range(1, 1000)), between($redis->pfCount('p'), 980, 1020)]);
    show('bits', [$redis->setBit('bits', 7, true), $redis->bitCount('bits'), $redis->bitpos('bits', 1),
        $redis->bitOp('NOT', 'not', 'bits'), bin2hex($redis->get('not'))]);
    show('sort', $redis->sort('numbers', ['sort' => 'desc']));
    $redis->rPush('numbers', 10, 9, 100);
    show('sorted', [$redis->sort('numbers'), $redis->sort('numbers', ['alpha' => true, 'limit' => [0, 2]])]);
    show('objects', [$redis->object('encoding', 'numbers'), $redis->type('zset') === Redis::REDIS_ZSET]);
    $dump = $redis->dump('numbers');
    show('restored', [$redis->restore('copy', 0, $dump), $redis->lRange('copy', 0, -1)]);
}

function streams(int $port): void
{
    $redis = connect($port);
    foreach (range(1, 5) as $n) {
        $redis->xAdd('stream', "$n-1", ['n' => $n]);
    }
    $redis->xGroup('CREATE', 'stream', 'group', '0');
    show('stream', [$redis->xLen('stream'), $redis->xRange('stream', '2', '3'), $redis->xRead(['stream' => '4-1'])]);
    show('group', $redis->xReadGroup('group', 'one', ['stream' => '>'], 2));
    show('pending', [$redis->xPending('stream', 'group'), $redis->xAck('stream', 'group', ['1-1'])]);
    show('claimed', $redis->xClaim('stream', 'group', 'two', 0, ['2-1'], ['JUSTID']));
    show('trimmed', [$redis->xTrim('stream', 3), $redis->xDel('stream', ['5-1']), $redis->xLen('stream')]);
}

function scripts(int $port): void
{
    $redis = connect($port);
    $script = 'return {KEYS[1], ARGV[1], redis.call("incr", KEYS[2]), false, {1, "x"}, 3.9}';
    show('eval', $redis->eval($script, ['a', 'script counter', 'v'], 2));
    $sha = $redis->script('load', 'return redis.call("get", KEYS[1])');
    show('evalsha', [$sha, $redis->evalSha($sha, ['script counter'], 1)]);
    show('unknown', error_of($redis, 'evalSha', str_repeat('0', 40)));
    show('its error', error_of($redis, 'eval', 'return redis.error_reply("MINE own")'));
    show('call fails', error_of($redis, 'eval', 'return redis.call("hget", "script counter", 1)'));
    show('exists', $redis->script('exists', $sha, str_repeat('0', 40)));
}

// One process publishes, until the other has seen all that it waits for.
function messages(int $port): void
{
    $redis = connect($port);
    $redis->setOption(Redis::OPT_READ_TIMEOUT, 30);
    $publish = '$r = new Redis(); $r->connect("127.0.0.1", (int) $argv[1]);
        while ($r->publish("news:start", "x") === 0) usleep(5000);
        foreach (range(1, 5) as $n) $r->publish("news:$n", "text $n");
        $r->publish("other", "not heard"); $r->publish("news:end", "end");';
    $child = proc_open([PHP_BINARY, '-r', $publish, '--', (string) $port], [], $pipes);
    $seen = [];
    try {
        $redis->pSubscribe(['news:*'], function ($redis, $pattern, $channel, $text) use (&$seen) {
            $seen[] = [$pattern, $channel, $text];
            if ($channel === 'news:end') {
                $redis->close();
            }
        });
    } catch (RedisException $end) {
        $seen[] = 'closed';
    }
    proc_close($child);
    show('messages', $seen);
}

// Keys spread over databases, as a ring of servers.
function arrays(int $port): void
{
    $redis = connect($port);
    show('database', [$redis->select(5), $redis->set('k', 'v'), $redis->dbSize(), $redis->getDbNum()]);
    show('moved', [$redis->move('k', 6), $redis->exists('k'), $redis->swapdb(5, 6), $redis->get('k')]);
    show('renamed', [$redis->rename('k', 'l'), $redis->renameNx('l', 'm'), $redis->unlink('m', 'x')]);
    show('raw', [$redis->rawCommand('SET', 'raw', '1'), $redis->rawCommand('APPEND', 'raw', '23')]);
    show('echo', [$redis->echo('text'), $redis->ping('pong'), $redis->ping()]);
    show('client', [$redis->client('setname', 'worker'), $redis->client('getname')]);
    show('listed', array_column($redis->client('list'), 'name'));
    show('config', $redis->config('GET', 'maxmemory-policy'));
    show('copied', [$redis->rawCommand('COPY', 'raw', 'copy'), $redis->get('copy')]);
}

function errors(int $port): void
{
    $redis = connect($port);
    $redis->set('text', 'abc');
    foreach ([['incr', 'text'], ['hGet', 'text', 'f'], ['lPush', 'text', 'x'], ['select', 99],
        ['setRange', 'text', -1, 'x'], ['auth', 'secret'], ['rawCommand', 'NOSUCH', 'a'],
        ['rawCommand', 'GET'], ['expire', 'text', PHP_INT_MAX], ['xAdd', 'stream', '0-0', ['a' => 1]],
        ['restore', 'broken', 0, 'no dump'], ['xReadGroup', 'group', 'one', ['none' => '>']],
    ] as $call) {
        show("$call[0] fails", error_of($redis, ...$call));
    }
}

// The client throws some errors, and keeps others.
function error_of(Redis $redis, string $command, mixed ...$arguments): string
{
    $redis->clearLastError();
    try {
        $reply = $redis->$command(...$arguments);
        return rtrim($redis->getLastError() ?? 'no error but ' . json_encode($reply), "\0");
    } catch (RedisException $error) {
        return 'thrown: ' . $error->getMessage();
    }
}

function connect(int $port): Redis
{
    $redis = new Redis();
    $redis->connect('127.0.0.1', $port, 30);
    return $redis;
}

// One request of a user with a session, from its start to its end.
function request(int $port, string $id, string $action, ?string $argument = null, array $settings = []): mixed
{
    return finish(start($port, $id, $action, $argument, $settings));
}

function start(int $port, string $id, string $action, ?string $argument, array $settings): array
{
    $settings += [
        'session.save_handler' => 'redis',
        'session.save_path' => "tcp://127.0.0.1:$port",
        'session.use_cookies' => '0',
        'session.cache_limiter' => '',
        'session.use_strict_mode' => '0',
        'session.gc_maxlifetime' => '1440',
        'display_errors' => '0',
        'log_errors' => '0',
    ];
    $command = [PHP_BINARY];
    foreach ($settings as $name => $value) {
        array_push($command, '-d', "$name=\"$value\"");
    }
    array_push($command, __DIR__ . '/session.php', $id, $action);
    if ($argument !== null) {
        $command[] = $argument;
    }
    $process = proc_open($command, [['pipe', 'r'], ['pipe', 'w']], $pipes);
    return ['process' => $process, 'input' => $pipes[0], 'output' => $pipes[1]];
}

function finish(array $started): mixed
{
    $said = stream_get_contents($started['output']);
    proc_close($started['process']);
    return json_decode($said, true) ?? "no JSON: $said";
}

function sorted(array $values): array
{
    sort($values);
    return $values;
}

function between(int $value, int $low, int $high): bool|int
{
    return $low <= $value && $value <= $high ?: $value;
}

function show(string $name, mixed $value): void
{
    echo "$name: ", json_encode($value, JSON_UNESCAPED_UNICODE | JSON_UNESCAPED_SLASHES), "\n";
}
