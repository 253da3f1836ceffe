import type { ClientVersion } from '../../settings/forms.ts'
import type { AuthRequest } from './control-message.ts'

/** Name for clients that report no name, such as the agent of version 2. */
const NAMELESS = 'agent'
const PRODUCT = /(@?[\w.-]+(?:\/[a-z][\w.-]*)?)\/v?(\d+(?:\.\d+){0,3})/gi
/** Maximum number of products read from a user agent. Real user agents are shorter. */
const MAX_PRODUCTS = 10

/**
 * Returns the entry of the list that a client is below, by any library in its user agent. Undefined if the
 * client is recent enough, or is not in the list.
 */
export function findOlder(
  extra: Pick<AuthRequest['Extra'], 'UserAgent' | 'ClientType' | 'Version'>,
  least: readonly ClientVersion[],
): { readonly found: ClientVersion; readonly least: ClientVersion } | undefined {
  if (least.length === 0) return undefined
  for (const found of productsOf(extra)) {
    const entry = least.find(({ name }) => name === found.name)
    if (entry && isBelow(found.version, entry.version)) return { found, least: entry }
  }
  return undefined
}

/** Products and versions that a client reports. */
function productsOf({
  UserAgent,
  ClientType,
  Version,
}: Parameters<typeof findOlder>[0]): ClientVersion[] {
  const products = [...UserAgent.matchAll(PRODUCT)]
    .slice(0, MAX_PRODUCTS)
    .map(([, name = '', version = '']): ClientVersion => ({ name: name.toLowerCase(), version }))
  const name = (ClientType || (products.length === 0 ? NAMELESS : '')).toLowerCase()
  const isNamed = name === '' || products.some((product) => product.name === name)
  const [version] = /\d+(?:\.\d+){0,3}/.exec(Version) ?? []
  return isNamed || version === undefined ? products : [...products, { name, version }]
}

function isBelow(version: string, least: string): boolean {
  const [own, other] = [version, least].map((text) => text.split('.').map(Number))
  for (let at = 0; at < Math.max(own?.length ?? 0, other?.length ?? 0); at += 1) {
    const difference = (own?.[at] ?? 0) - (other?.[at] ?? 0)
    if (difference !== 0) return difference < 0
  }
  return false
}
