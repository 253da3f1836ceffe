import { readFileSync } from 'node:fs'
import { join } from 'node:path'

/** A folder for each released version, with data that this version wrote. */
export const RELEASES = join(import.meta.dirname, 'releases')
/** A tunnel whose policy answers, so that it needs no service. */
export const SAMPLE_HOST = 'cam.site.localhost'

export type Call = (method: string, path: string, body?: object) => Promise<unknown>

/** Answers of the APIs, by path. */
export type Answers = Readonly<Record<'gateway' | 'agent', Readonly<Record<string, unknown>>>>

const PATHS = {
  gateway: [
    ...['/bot_users', '/credentials', '/api_keys', '/reserved_domains', '/reserved_addrs'],
    ...['/ip_policies', '/ip_policy_rules', '/endpoints', '/webhook_endpoints', '/devices'],
  ],
  agent: ['/tunnels', '/tokens'],
} as const
/** Fields that a restart or the time changes. */
const VOLATILE = new Set([
  ...['uri', 'next_page_uri', 'last_used_at', 'hostport', 'url', 'public_url', 'port', 'status'],
  ...['certificate_management_status', 'traffic', 'rate_limits', 'latency_ms', 'tunnel_sessions'],
])

/** Everything in the lists of both APIs that stays the same over a restart; of endpoints, those in the cloud. */
export async function answersOf(
  calls: Readonly<Record<'gateway' | 'agent', Call>>,
): Promise<Answers> {
  const read = async (part: 'gateway' | 'agent') => {
    const lists: Record<string, unknown> = {}
    for (const path of PATHS[part]) lists[path] = lasting(await calls[part]('GET', path))
    return lists
  }
  return { gateway: await read('gateway'), agent: await read('agent') }
}

function lasting(value: unknown): unknown {
  if (Array.isArray(value)) return value.filter((item) => !isVolatile(item)).map(lasting)
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(
    Object.entries(value).flatMap(([key, item]) =>
      VOLATILE.has(key) ? [] : [[key, lasting(item)]],
    ),
  )
}

/** An endpoint of a device, or a URL with a port that another start changes. */
function isVolatile(item: unknown): boolean {
  if (typeof item === 'string') return /^[a-z]+:\/\/.*:\d+$/.test(item)
  return (
    typeof item === 'object' &&
    item !== null &&
    'tunnel_session' in item &&
    item.tunnel_session !== null
  )
}

/** Versions of the changelog. */
export function releasedVersions(): string[] {
  const changelog = readFileSync(join(import.meta.dirname, '../../CHANGELOG.md'), 'utf8')
  return Array.from(changelog.matchAll(/^## (\d+\.\d+\.\d+) - /gm), ([, version = '']) => version)
}
