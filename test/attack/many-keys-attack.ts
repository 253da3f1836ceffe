import { type AttackedSite, floodWithKeys } from './key-flood.ts'

export const attack = {
  name: 'many-keys',
  what: '110,000 keys from one address against a rate limit that counts 100,000 apart',
  run: (site: AttackedSite) =>
    floodWithKeys(site, { tableSize: 100_000, attackers: 1, keys: 110_000, newcomers: 50 }),
}
