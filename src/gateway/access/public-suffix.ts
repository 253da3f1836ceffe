import { parse } from 'tldts'

/** Stands for any label in a question about what lies right below a name. */
const ANY_LABEL = 'any'

/**
 * True for a name below which anybody may register names: `com`, `co.uk`, `github.io`, a top-level name
 * that is on no list, and a name below which all names are such.
 */
export function isPublicSuffix(name: string): boolean {
  return isSuffix(name) || isSuffix(`${ANY_LABEL}.${name}`)
}

function isSuffix(name: string): boolean {
  const { publicSuffix } = parse(name, { allowPrivateDomains: true, extractHostname: false })
  return publicSuffix === name
}
