import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { systemClock } from '../src/base/clock.ts'
import { createLogger } from '../src/base/logger.ts'
import { AddressOrigins } from '../src/gateway/origins/address-origins.ts'
import { AddressLookUps } from '../src/policy/exchange/address-tables.ts'
import { ParsedFields } from '../src/policy/exchange/parsed-fields.ts'
import type { Account } from '../src/policy/expression/account.ts'
import { type MmdbValue, mmdbFile } from '../test/helpers/mmdb-file.ts'
import { scratchFolder } from './tools.ts'

/** What a city has in the tables that people use. */
const LANGUAGES = ['de', 'en', 'es', 'fr', 'ja', 'pt-BR', 'ru', 'zh-CN']
const named = (name: string) => ({
  geoname_id: 2_950_159,
  names: Object.fromEntries(LANGUAGES.map((language) => [language, `${name} (${language})`])),
})
const COUNTRY = { ...named('Bundesrepublik Deutschland'), iso_code: 'DE' }
const CITY: MmdbValue = {
  city: named('Frankfurt am Main'),
  continent: { ...named('Europe'), code: 'EU' },
  country: { ...COUNTRY, is_in_european_union: true },
  location: {
    accuracy_radius: 20,
    latitude: 52.5,
    longitude: 13.25,
    metro_code: 7,
    time_zone: 'Europe/Berlin',
  },
  postal: { code: '60311' },
  registered_country: COUNTRY,
  subdivisions: [{ ...named('Land Hessen'), iso_code: 'HE' }],
}
const NETWORK: MmdbValue = {
  autonomous_system_number: 64_496,
  autonomous_system_organization: 'Example Communications of the North and South',
}

/** Tables that know `ip` to its last bit, which takes the longest. */
export async function openTables(ip: string): Promise<AddressOrigins> {
  const folder = scratchFolder()
  const write = (name: string, value: MmdbValue, type: string) => {
    const path = join(folder, name)
    writeFileSync(path, mmdbFile({ [`${ip}/32`]: value }, { type }))
    return path
  }
  const origins = new AddressOrigins({
    geoPath: write('geo.mmdb', CITY, 'GeoLite2-City'),
    asnPath: write('asn.mmdb', NETWORK, 'GeoLite2-ASN'),
    clock: systemClock,
    log: createLogger('silent'),
  })
  await origins.start()
  return origins
}

const LENGTH = 512
/** More than is remembered of those that were read. */
const AGENTS = 1_500
const CHROME =
  'Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36'
const PHONE =
  'Mozilla/5.0 (Linux; Android 14; Pixel 8 Build/UQ1A) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0 Mobile Safari/537.36'
const long = (piece: string) => piece.repeat(Math.ceil(LENGTH / piece.length))

/** Kinds of clients, and what somebody makes to be costly. */
const USER_AGENTS: Readonly<Record<string, string>> = {
  curl: 'curl/8.5.0',
  Chrome: CHROME,
  'a phone': PHONE,
  'a bot': 'Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)',
  empty: '',
  ...Object.fromEntries(
    ['a', 'Mozilla/5.0 (', '(compatible; ', 'Android 1.1; ', 'Version/1.1 ', '1.', ' ', 'x/1;'].map(
      (piece) => [`512 of '${piece}'`, long(piece)],
    ),
  ),
}

/** What reading variables takes that are looked up once a request, each time as in another one. */
export function onceReaders(
  account: Account,
  tables: AddressOrigins,
  ip: string,
): Readonly<Record<string, () => unknown>> {
  return {
    'conn.client_ip.geo': () => new AddressLookUps().locationOf(ip, tables, account),
    'conn.client_ip.as': () => new AddressLookUps().networkOf(ip, tables, account),
    ...Object.fromEntries(
      Object.entries(USER_AGENTS).map(([kind, text]) => [
        `req.user_agent: ${kind}`,
        userAgentReader(text, account),
      ]),
    ),
  }
}

/** Reads one that nobody has read before. */
function userAgentReader(text: string, account: Account): () => void {
  const head = text.slice(0, LENGTH - 6)
  const texts = Array.from({ length: AGENTS }, (_, n) => `${head} ${String(n).padStart(5, '0')}`)
  let next = 0
  return () => {
    next = (next + 1) % texts.length
    new ParsedFields().userAgent(texts[next] ?? '', account)
  }
}
