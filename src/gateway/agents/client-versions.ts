import type { AuthRequest } from './control-message.ts'

/** A client by the name that it gives itself, and a version of it. */
export interface ClientVersion {
  readonly name: string
  readonly version: string
}

/** Which clients are to be updated. */
export interface LeastClientVersions {
  /** Below, a client is told to update. */
  readonly warnBelow?: readonly ClientVersion[] | undefined
  /** Below, a client is refused. */
  readonly refuseBelow?: readonly ClientVersion[] | undefined
}

/** A client that gives itself no name, such as the agent of version 2. */
const NAMELESS = 'agent'
const PRODUCT = /(@?[\w.-]+(?:\/[a-z][\w.-]*)?)\/v?(\d+(?:\.\d+){0,3})/gi
const ENTRY = /^(@?[a-z][\w.-]*(?:\/[a-z][\w.-]*)?)\/v?(\d+(?:\.\d+){0,3})$/i
/** No user agent is that long a chain. */
const MAX_PRODUCTS = 10

/** Reads `name/version`, such as `ngrok-go/1.11`; undefined when it is none. */
export function parseClientVersion(text: string): ClientVersion | undefined {
  const [, name, version] = ENTRY.exec(text) ?? []
  return name && version ? { name: name.toLowerCase(), version } : undefined
}

/**
 * The entry of a list that a client is below, by any library in its chain; undefined when it is new
 * enough, or the list does not name it.
 */
export function findOlder(
  extra: Pick<AuthRequest['Extra'], 'UserAgent' | 'ClientType' | 'Version'>,
  least: readonly ClientVersion[] = [],
): { readonly found: ClientVersion; readonly least: ClientVersion } | undefined {
  if (least.length === 0) return undefined
  for (const found of productsOf(extra)) {
    const entry = least.find(({ name }) => name === found.name)
    if (entry && isBelow(found.version, entry.version)) return { found, least: entry }
  }
  return undefined
}

/** What a client says that it is made of. */
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
