import type { Duplex } from 'node:stream'
import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/logger.ts'
import type { Exchange } from './exchange.ts'
import { CONTINUE, type MaybePromise, type Outcome } from './outcome.ts'

export interface PolicyOptions {
  readonly clock: Clock
  readonly log: Logger
  /** The policy that this one replaces: counters of actions that did not change are taken over. */
  readonly previous?: CompiledPolicy | undefined
  /** Whether an internal endpoint with this URL is online; without it nothing can be forwarded. */
  readonly hasInternal?: ((url: URL) => boolean) | undefined
  /** Opens a byte stream to an internal endpoint for http-request; undefined when it is offline. */
  readonly connectInternal?: ((url: URL) => Duplex | undefined) | undefined
  /** Which addresses http-request and key downloads may reach; private networks unless given. */
  readonly mayReach?: ((ip: string) => boolean) | undefined
}

/** A checked document, ready to run. One per endpoint: its counters are the endpoint's own. */
export class CompiledPolicy {
  readonly hasConnectRules: boolean = false
  readonly hasRequestRules: boolean = false
  readonly hasResponseRules: boolean = false

  /** Runs the rules of `on_tcp_connect`; an answer can only be `continue`, `close` or `forward`. */
  onTcpConnect(exchange: Exchange): MaybePromise<Outcome> {
    return (void exchange, CONTINUE)
  }

  /** Runs the rules of `on_http_request`. Synchronous unless an action has to wait. Never throws. */
  onHttpRequest(exchange: Exchange): MaybePromise<Outcome> {
    return (void exchange, CONTINUE)
  }

  /** Runs the rules of `on_http_response`; `exchange.response` is set. Never throws. */
  onHttpResponse(exchange: Exchange): MaybePromise<Outcome> {
    return (void exchange, CONTINUE)
  }
}

/**
 * Compiles a document (JSON or YAML text, or the parsed value; null has no rules).
 * Throws PolicyError with every problem at once.
 */
export function compilePolicy(source: unknown, options: PolicyOptions): CompiledPolicy {
  return (void source, void options, new CompiledPolicy())
}
