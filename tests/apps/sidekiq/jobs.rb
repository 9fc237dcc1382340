# frozen_string_literal: true

# The jobs of Sidekiq's workload, and the settings of its processes. PORT is in the environment.

require 'sidekiq'

Redis.silence_deprecations = true
REDIS = { url: "redis://127.0.0.1:#{ENV.fetch('PORT')}/0" }.freeze
Sidekiq.configure_client { |config| config.redis = REDIS }
Sidekiq.configure_server do |config|
  config.redis = REDIS
  # What is due is looked for often, instead of every few seconds.
  config.options[:poll_interval_average] = 0.2
  config.death_handlers << ->(job, error) { note('deaths', "#{job['class']} #{error.message}") }
end

def note(list, text)
  Sidekiq.redis { |redis| redis.rpush("notes:#{list}", text) }
end

# Notes that it ran, and in which order.
class Noted
  include Sidekiq::Worker

  def perform(list, text)
    note(list, text)
  end
end

# Another queue.
class Urgent < Noted
  sidekiq_options queue: 'urgent'
end

# Fails until the given attempt.
class Patient
  include Sidekiq::Worker

  sidekiq_options retry: 5, backtrace: 2

  def perform(name, succeeds_at)
    attempt = Sidekiq.redis { |redis| redis.incr("attempts:#{name}") }
    raise ArgumentError, "attempt #{attempt}" if attempt < succeeds_at

    note('patient', "#{name} #{attempt}")
  end
end

# Dies after its first retry.
class Mortal
  include Sidekiq::Worker

  sidekiq_options retry: 1
  sidekiq_retries_exhausted { |job, error| note('exhausted', "#{job['args']} #{error.message}") }

  def perform(name)
    raise IOError, name
  end
end

# Is not tried again.
class Hopeless
  include Sidekiq::Worker

  sidekiq_options retry: false

  def perform(name)
    raise IOError, name
  end
end

# Runs until it is told to end.
class Long
  include Sidekiq::Worker

  def perform
    note('long', 'begun')
    sleep 0.02 until Sidekiq.redis { |redis| redis.exists?('end') }
    note('long', 'ended')
  end
end
