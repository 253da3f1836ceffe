import bowser from 'bowser'

/** Characters that are parsed: names of programs are shorter. */
export const MAX_USER_AGENT = 512
/** Cached texts, of at most a kilobyte each. */
const MAX_REMEMBERED = 1_000

/** Parsed name of a client. Unknown parts are empty. */
export interface UserAgent {
  readonly name: string
  readonly version: string
  readonly os: string
  readonly osVersion: string
  readonly device: string
  /** URL that describes the program. */
  readonly url: string
  readonly platform: 'mobile' | 'tablet' | 'desktop' | ''
  readonly isBot: boolean
}

const PLATFORMS: ReadonlySet<string> = new Set(['mobile', 'tablet', 'desktop'])
/** Names for which the library uses another form. */
const NAMES: Readonly<Record<string, string>> = { 'Microsoft Edge': 'Edge' }
const URL_WITHIN = /https?:\/\/[^\s;,()]+/
const BOT = /bot\b|crawler|spider|slurp/i
/** `Mozilla/5.0 (compatible; AhrefsBot/7.0; …`, else `curl/8.5.0`. */
const PRODUCT = /(?:\(compatible; |^)([A-Za-z][\w.-]{0,63})(?:\/([\w.]{1,32}))?/
const ANDROID_DEVICE = /Android [\d.]{1,16}; ([^;()]{1,64}?)(?: Build|[;)])/

const remembered = new Map<string, UserAgent>()

/** Reads a User-Agent field: its first characters, for a longer one is made to be costly. */
export function readUserAgent(field: string): UserAgent {
  const text = field.slice(0, MAX_USER_AGENT)
  const known = remembered.get(text)
  if (known) return known
  const agent = parse(text)
  if (remembered.size >= MAX_REMEMBERED) forgetOldest()
  remembered.set(text, agent)
  return agent
}

function forgetOldest(): void {
  for (const oldest of remembered.keys()) {
    remembered.delete(oldest)
    return
  }
}

function parse(text: string): UserAgent {
  // The library does not accept an empty text.
  const { browser, os, platform } = bowser.parse(text || ' ')
  const url = URL_WITHIN.exec(text)?.[0] ?? ''
  const isKnown = browser.name !== undefined && browser.name !== '' && browser.name !== 'Mozilla'
  const [, product = '', version = ''] = isKnown ? [] : (lastOf(text) ?? [])
  return {
    name: isKnown ? (NAMES[browser.name ?? ''] ?? browser.name ?? '') : product,
    version: isKnown ? (browser.version ?? '') : version,
    os: os.name ?? '',
    osVersion: (os.version ?? '').replace(/^NT /, ''),
    device: platform.model ?? ANDROID_DEVICE.exec(text)?.[1] ?? platform.vendor ?? '',
    url,
    platform: PLATFORMS.has(platform.type ?? '') ? (platform.type as UserAgent['platform']) : '',
    isBot: platform.type === 'bot' || url !== '' || BOT.test(text),
  }
}

/**
 * The product after `(compatible; `, else the first product: a program that imitates another one names itself
 * there.
 */
function lastOf(text: string): RegExpExecArray | null {
  const compatible = text.indexOf('(compatible; ')
  return PRODUCT.exec(compatible === -1 ? text : text.slice(compatible))
}
