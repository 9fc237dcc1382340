# frozen_string_literal: true

# What Sidekiq's processes do with their jobs. Prints what was seen, in the same order in each run:
# ruby run.rb PORT.

ENV['PORT'] = ARGV.fetch(0)

require 'json'
require 'sidekiq/api'
require_relative 'jobs'

SECONDS = 60
$stdout.sync = true

def show(name, value)
  puts "#{name}: #{JSON.generate(value)}"
end

def wait_until(what)
  limit = Process.clock_gettime(Process::CLOCK_MONOTONIC) + SECONDS
  until yield
    abort "#{what}: takes too long" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > limit
    sleep 0.02
  end
end

def notes(list)
  Sidekiq.redis { |redis| redis.lrange("notes:#{list}", 0, -1) }
end

# Runs a process with some threads and queues until the block is done.
def process(threads, *queues, signal: 'TERM')
  command = ['sidekiq', '-r', './jobs.rb', '-c', threads.to_s, '-t', '2']
  command += queues.flat_map { |queue| ['-q', queue] }
  id = Process.spawn(*command, out: 'process.log', err: 'process.log')
  yield id
ensure
  Process.kill(signal, id)
  Process.wait(id)
end

# What waits in queues and sets before any process runs.
def enqueued
  show 'pushed', Noted.perform_async('first', 'a').size
  5.times { |n| Noted.perform_async('first', n) }
  jobs = (1..250).map { |n| ['bulk', n] }
  show 'bulk', Sidekiq::Client.push_bulk('class' => Noted, 'args' => jobs).size
  Urgent.perform_async('first', 'urgent')
  show 'queues', Sidekiq::Stats.new.queues.sort
  show 'size', Sidekiq::Queue.new.size
  show 'newest first', Sidekiq::Queue.new.first(2).map(&:args)
  found = Sidekiq::Queue.new.find { |job| job.args == ['first', 3] }
  show 'found', [found.klass, found.args, found.delete]
  show 'not found', Sidekiq::Queue.new.find_job('nobody')
  show 'size then', Sidekiq::Queue.new.size
  show 'latency', Sidekiq::Queue.new.latency.between?(0, SECONDS)
end

# One thread takes the jobs in order, those of the first queue first.
def in_order
  process(1, 'urgent', 'default') { wait_until('all ran') { notes('bulk').size == 250 } }
  show 'order', notes('first')
  show 'bulk order', notes('bulk') == (1..250).map(&:to_s)
  show 'processed', [Sidekiq::Stats.new.processed, Sidekiq::Stats.new.failed]
  show 'empty', Sidekiq::Stats.new.queues
end

# Jobs of the future wait in a set, by their time.
def scheduled
  Noted.perform_in(3600, 'later', 'hour')
  Noted.perform_in(86_400, 'later', 'day')
  Noted.perform_at(Time.now + 1, 'later', 'second')
  gone = Noted.perform_in(7200, 'later', 'deleted')
  Noted.perform_in(-5, 'later', 'past')
  set = Sidekiq::ScheduledSet.new
  show 'scheduled', [set.size, set.map(&:args)]
  show 'deleted', [set.find_job(gone).delete, set.size]
  show 'scanned', set.scan('*hour*').map(&:args)
  show 'bulk at', Sidekiq::Client.push_bulk(
    'class' => Noted, 'args' => [['later', 'x'], ['later', 'y']], 'at' => Time.now.to_f + 5000
  ).size
  set.find { |job| job.args == %w[later day] }.add_to_queue
  hour = set.find { |job| job.args == %w[later hour] }
  hour.reschedule(Time.now + 0.5)
  process(1) { wait_until('they ran') { notes('later').size == 4 } }
  show 'those due', notes('later').sort
  show 'left', set.map(&:args).sort
  set.clear
  show 'cleared', [set.size, Sidekiq::Stats.new.scheduled_size]
end

# A job that fails is tried again when its time comes, or when somebody says so.
def retries
  set = Sidekiq::RetrySet.new
  process(2) do
    Patient.perform_async('third', 3)
    2.times do |n|
      wait_until("failure #{n}") { set.first&.item&.[]('error_message') == "attempt #{n + 1}" }
      show 'failed', set.first.item.slice('error_class', 'error_message', 'retry_count', 'queue')
      show 'backtrace', set.first.error_backtrace.size
      show 'due later', set.first.at > Time.now
      set.first.retry
    end
    wait_until('it ran') { notes('patient').any? }
    show 'third time', notes('patient')
    Patient.perform_async('killed', 100)
    wait_until('the one to kill failed') { set.size == 1 }
    set.kill_all
  end
  show 'killed', [set.size, Sidekiq::DeadSet.new.map(&:args)]
  Sidekiq::DeadSet.new.clear
end

# A job without tries left goes to the dead, and can be brought back.
def deaths
  retried = Sidekiq::RetrySet.new
  dead = Sidekiq::DeadSet.new
  process(2) do
    Mortal.perform_async('short life')
    wait_until('the mortal failed') { retried.size == 1 }
    retried.first.reschedule(Time.now)
    wait_until('it died') { dead.size == 1 && notes('deaths').size == 1 }
    show 'exhausted', notes('exhausted')
    Hopeless.perform_async('none')
    wait_until('the hopeless failed') { notes('deaths').size == 2 }
  end
  show 'deaths', notes('deaths')
  show 'dead', dead.map { |job| [job.klass, job.args, job['error_class'], job['retry_count']] }
  dead.retry_all
  show 'brought back', [dead.size, Sidekiq::Queue.new.map(&:klass)]
  Sidekiq::Queue.new.clear
  show 'queue cleared', [Sidekiq::Queue.all.map(&:name), Sidekiq::Queue.new.size]
end

# A process is seen by others; a job that does not end in time goes back into its queue.
def processes
  id = Long.perform_async
  process(1) do |pid|
    wait_until('it began') { notes('long').size == 1 }
    wait_until('it is seen') { Sidekiq::Workers.new.size == 1 }
    seen = Sidekiq::ProcessSet.new.first
    show 'process', [Sidekiq::ProcessSet.new.size, seen['pid'] == pid, seen['queues']]
    work = Sidekiq::Workers.new.map { |_process, _thread, job| job }
    show 'work', [work.first['queue'], work.first['payload']['jid'] == id]
    show 'heartbeat', Sidekiq.redis { |redis| redis.ttl(seen.identity).between?(1, 60) }
    seen.quiet!
    wait_until('it is quiet') { Sidekiq::ProcessSet.new.first.stopping? }
  end
  show 'pushed back', Sidekiq::Queue.new.map { |job| [job.klass, job.jid == id] }
  show 'no process', [Sidekiq::ProcessSet.new.size, Sidekiq::Workers.new.size]
  Sidekiq.redis { |redis| redis.set('end', 1) }
  process(1) { wait_until('it ended') { notes('long').size == 3 } }
  show 'run again', notes('long')
end

# Many threads of two processes take each job once.
def together
  Sidekiq::Client.push_bulk('class' => Noted, 'args' => (1..1000).map { |n| ['many', n] })
  process(5) { process(5) { wait_until('all ran') { notes('many').size >= 1000 } } }
  show 'each once', notes('many').map(&:to_i).sort == (1..1000).to_a
  stats = Sidekiq::Stats.new
  show 'counted', [stats.processed, stats.failed, stats.enqueued, stats.retry_size, stats.dead_size]
  show 'today', Sidekiq::Stats::History.new(1).processed.values == [stats.processed]
  stats.reset
  show 'reset', [Sidekiq::Stats.new.processed, Sidekiq::Stats.new.failed]
end

def left
  kind = ->(key) { key.sub(/\d{4}-\d\d-\d\d/, 'DAY').sub(/^.*:\d+:\h{12}$/, 'PROCESS') }
  Sidekiq.redis do |redis|
    redis.scan_each.sort.map { |key| [kind.call(key), redis.type(key), redis.ttl(key).positive?] }.uniq
  end
end

enqueued
in_order
scheduled
retries
deaths
processes
together
show 'keys that are left', left
