import type { SharedConnection } from '../../../base/net/connection-shares.ts'

/** A visitor's connection, as the ingress keeps it. */
export interface IngressConnection extends SharedConnection {
  /** Begins no exchange any more; closes when those under way are over. */
  stop(): void
  /** Closes without waiting for anybody. */
  destroy(): void
  /** Looks at the deadlines; `now` is monotonic. */
  sweep(now: number): void
  /** Looks whether the client keeps the gateway busy with nothing; more often than `sweep`. */
  checkFlood(): void
}
