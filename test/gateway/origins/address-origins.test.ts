import { copyFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { AddressOrigins } from '../../../src/gateway/origins/address-origins.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { eventually } from '../../helpers/eventually.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'
import { type MmdbOptions, type MmdbValue, mmdbFile } from '../../helpers/mmdb-file.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

const GERMANY = { iso_code: 'DE', names: { en: 'Germany' }, is_in_european_union: true }
const BERLIN: MmdbValue = {
  city: { names: { en: 'Berlin', de: 'Berlin' } },
  continent: { code: 'EU', names: { en: 'Europe' } },
  country: GERMANY,
  location: {
    accuracy_radius: 20,
    latitude: 52.5,
    longitude: 13.25,
    metro_code: 7,
    time_zone: 'Europe/Berlin',
  },
  postal: { code: '10117' },
  registered_country: { iso_code: 'US', names: { en: 'United States' } },
  subdivisions: [{ iso_code: 'BE', names: { en: 'Land Berlin' } }],
}
const NOWHERE = {
  city: '',
  continent: '',
  country: '',
  countryCode: '',
  isEu: false,
  metroCode: '',
  subdivision: '',
  timezone: '',
}

/** A table in a file, and what follows it. */
async function openGeo(content: Buffer | undefined) {
  const geoPath = join(temporaryFolder(), 'geo.mmdb')
  if (content) writeFileSync(geoPath, content)
  const { log, text } = captureLog('info')
  const clock = new ManualClock()
  const origins = new AddressOrigins({ geoPath, asnPath: undefined, clock, log })
  onTestFinished(() => origins.stop())
  await origins.start()
  return { origins, geoPath, text, clock }
}

/** What comes of the next look at the file, whenever the disk has answered the one before. */
const afterLook = (clock: ManualClock, check: () => void) =>
  eventually(async () => {
    await clock.advance(10_000)
    check()
  })

const countryOf = (origins: AddressOrigins, ip: string) => origins.locationOf(ip)?.countryCode
const geo = (networks: Record<string, MmdbValue>, options?: MmdbOptions) =>
  mmdbFile(networks, options)
const one = (iso: string) => geo({ '203.0.113.0/24': { country: { iso_code: iso } } })

describe('a table of locations', () => {
  it('says all that it has of an address', async () => {
    const { origins, text } = await openGeo(geo({ '203.0.113.0/24': BERLIN }))
    expect(origins.locationOf('203.0.113.77')).toEqual({
      city: 'Berlin',
      continent: 'Europe',
      country: 'Germany',
      countryCode: 'DE',
      isEu: true,
      latitude: '52.5',
      longitude: '13.25',
      radius: '20',
      metroCode: '7',
      postalCode: '10117',
      subdivision: 'Land Berlin',
      timezone: 'Europe/Berlin',
      registered: { ...NOWHERE, country: 'United States', countryCode: 'US' },
    })
    expect(text()).toContain('GATEWAY_GEO_DB loaded')
    expect([origins.has('geo'), origins.has('asn')]).toEqual([true, false])
    expect(origins.networkOf('203.0.113.77')).toBeUndefined()
  })

  it.each(['203.0.112.255', '203.0.114.0', '10.0.0.1', '127.0.0.1', '2001:db8::9', '', 'nobody'])(
    'knows nothing of %j',
    async (ip) => {
      const { origins } = await openGeo(geo({ '203.0.113.0/24': BERLIN }))
      const point = { latitude: '', longitude: '', radius: '', postalCode: '' }
      expect(origins.locationOf(ip)).toEqual({ ...NOWHERE, ...point, registered: NOWHERE })
    },
  )

  it.each([
    { recordSize: 24 },
    { recordSize: 28 },
    { recordSize: 32 },
    { recordSize: 24, ipVersion: 4 },
  ] as const)('is read in the form %j', async (form) => {
    const networks = {
      '198.51.100.0/25': { country: { iso_code: 'FR' } },
      '198.51.100.128/25': { country: { iso_code: 'AT' } },
      '203.0.113.9': { country: { iso_code: 'CH' } },
      ...('ipVersion' in form ? {} : { '2001:db8:1::/48': { country: { iso_code: 'IT' } } }),
    }
    const { origins } = await openGeo(geo(networks, form))
    expect(countryOf(origins, '198.51.100.1')).toBe('FR')
    expect(countryOf(origins, '198.51.100.200')).toBe('AT')
    expect([countryOf(origins, '203.0.113.9'), countryOf(origins, '203.0.113.8')]).toEqual([
      'CH',
      '',
    ])
    // Its first bits are those of 32.1.13.184 in a table of IPv4.
    expect(countryOf(origins, '2001:db8:1::7')).toBe('ipVersion' in form ? '' : 'IT')
    expect(countryOf(origins, '2001:db8:1::7%eth0')).toBe('ipVersion' in form ? '' : 'IT')
  })

  it('takes no IPv6 address for one of IPv4', async () => {
    const { origins } = await openGeo(
      geo({ '32.0.0.0/8': { country: { iso_code: 'US' } } }, { ipVersion: 4 }),
    )
    expect([countryOf(origins, '32.1.13.184'), countryOf(origins, '2001:db8::1')]).toEqual([
      'US',
      '',
    ])
  })

  it('follows its file, and keeps what it had when that is damaged or gone', async () => {
    const { origins, geoPath, clock, text } = await openGeo(one('DE'))
    expect(countryOf(origins, '203.0.113.1')).toBe('DE')
    const next = `${geoPath}.next`
    writeFileSync(next, one('FR'))
    renameSync(next, geoPath)
    await afterLook(clock, () => expect(countryOf(origins, '203.0.113.1')).toBe('FR'))
    writeFileSync(next, one('AT').subarray(0, -20))
    renameSync(next, geoPath)
    await afterLook(clock, () => expect(text()).toContain('the previous data stays in use'))
    expect(countryOf(origins, '203.0.113.1')).toBe('FR')
    rmSync(geoPath)
    await afterLook(clock, () => expect(text()).toContain('the file does not exist'))
    expect(countryOf(origins, '203.0.113.1')).toBe('FR')
    writeFileSync(next, one('AT'))
    copyFileSync(next, geoPath)
    await afterLook(clock, () => expect(countryOf(origins, '203.0.113.1')).toBe('AT'))
  })

  it.each<[string, Buffer | undefined, string]>([
    ['is not there', undefined, 'the file does not exist'],
    ['is empty', Buffer.alloc(0), 'cannot be used'],
    ['is something else', Buffer.from('<html>not found</html>'.repeat(9)), 'cannot be used'],
    ['is half of one', one('DE').subarray(40), 'cannot be used'],
    ['has no end', one('DE').subarray(0, -9), 'cannot be used'],
    ['is of another kind', geo({}, { type: 'GeoLite2-ASN' }), 'wrong type, GeoLite2-ASN'],
  ])('that %s is told, and known to be unknown', async (_, content, sentence) => {
    const { origins, text, geoPath, clock } = await openGeo(content)
    expect(origins.locationOf('203.0.113.1')).toBeUndefined()
    expect(text()).toContain(sentence)
    expect(text()).toContain('expressions that need it fail until the file can be read')
    await clock.advance(30_000)
    expect(text().split('cannot be used')).toHaveLength(2)
    writeFileSync(geoPath, one('DE'))
    await afterLook(clock, () => expect(countryOf(origins, '203.0.113.1')).toBe('DE'))
  })

  it('with a damaged part is told once, and answers for the rest', async () => {
    const networks = {
      '203.0.112.0/24': { country: { iso_code: 'XX' } },
      '198.51.100.0/24': { country: { iso_code: 'DE' } },
    }
    const file = geo(networks)
    // A text that says that it is longer than the file is none; this is a type that does not exist.
    file[file.indexOf('iso_code') + 'iso_code'.length] = 0
    file[file.indexOf('iso_code') + 'iso_code'.length + 1] = 99
    const { origins, text } = await openGeo(file)
    expect(countryOf(origins, '198.51.100.1')).toBe('DE')
    for (let times = 0; times < 3; times += 1) {
      expect(origins.locationOf('203.0.112.1')).toBeUndefined()
    }
    expect(text().split('the file is damaged')).toHaveLength(2)
  })
})

describe('a table of autonomous systems', () => {
  it('says whose an address is', async () => {
    const asnPath = join(temporaryFolder(), 'asn.mmdb')
    const network = {
      autonomous_system_number: 64_500,
      autonomous_system_organization: 'Example Net',
    }
    writeFileSync(asnPath, mmdbFile({ '203.0.113.0/24': network }, { type: 'GeoLite2-ASN' }))
    const { log } = captureLog()
    const origins = new AddressOrigins({
      geoPath: undefined,
      asnPath,
      clock: new ManualClock(),
      log,
    })
    onTestFinished(() => origins.stop())
    await origins.start()
    expect(origins.networkOf('203.0.113.9')).toEqual({
      number: 64_500,
      organization: 'Example Net',
    })
    expect(origins.networkOf('203.0.114.9')).toEqual({ number: 0, organization: '' })
    expect([origins.has('asn'), origins.locationOf('203.0.113.9')]).toEqual([true, undefined])
  })
})
