import { createHash } from 'node:crypto'
import type { TunnelSpec } from '../../agent/tunnel.ts'

interface Specified {
  readonly spec: TunnelSpec
}

/**
 * Entity tags stand for what is wanted, not for how it is: they change when somebody changes a tunnel,
 * and not when one goes offline.
 */
export function tunnelEtag({ spec }: Specified): string {
  return etagOf(wantedText(spec))
}

/** Of all tunnels, in whatever order. */
export function setEtag(tunnels: readonly Specified[]): string {
  const texts = tunnels.map(({ spec }) => wantedText(spec))
  return etagOf(`[${texts.sort().join(',')}]`)
}

function wantedText(spec: TunnelSpec): string {
  const { protocol, domain, forwardsTo, policy, upstream, isPooled } = spec
  return JSON.stringify([protocol, domain, forwardsTo, policy, upstream ?? null, isPooled === true])
}

function etagOf(text: string): string {
  return `"${createHash('sha256').update(text).digest('hex').slice(0, 32)}"`
}
