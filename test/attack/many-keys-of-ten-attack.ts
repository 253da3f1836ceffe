import { type AttackedSite, floodWithKeys } from './key-flood.ts'

const TABLE_SIZE = 1_000

export const attack = {
  name: 'many-keys-of-ten',
  what: '20,000 keys from ten addresses against a rate limit that counts 1,000 apart',
  env: { GATEWAY_RATE_LIMIT_KEYS: String(TABLE_SIZE) },
  run: (site: AttackedSite) =>
    floodWithKeys(site, { tableSize: TABLE_SIZE, attackers: 10, keys: 20_000, newcomers: 50 }),
}
