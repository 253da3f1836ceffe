import { describe, expect, it } from 'vitest'
import {
  type Component,
  noticesText,
  refuseForeignDependencies,
  refuseForeignTerms,
} from '../../packaging/components.ts'
import { readManifest } from '../../packaging/project.ts'
import { sbomText } from '../../packaging/sbom.ts'

const one: Component = {
  name: '@scope/one',
  version: '1.0.0',
  license: 'MIT',
  integrity: `sha512-${Buffer.from('00ff', 'hex').toString('base64')}`,
  notices: ['Copyright one'],
}
const two: Component = {
  ...one,
  name: 'two',
  version: '2.0.0',
  license: '(MIT OR GPL-2.0)',
  integrity: undefined,
}

describe('the bill of materials', () => {
  const bom = (components: readonly Component[], date = 0) =>
    JSON.parse(sbomText(readManifest(), components, date))

  it('names each component with its licence and bytes', () => {
    expect(bom([one, two])).toMatchObject({
      bomFormat: 'CycloneDX',
      specVersion: '1.6',
      serialNumber: expect.stringMatching(/^urn:uuid:[\da-f]{8}-[\da-f]{4}-8[\da-f]{3}-[89ab]/),
      metadata: { timestamp: '1970-01-01T00:00:00.000Z', component: { name: 'device-agent' } },
      components: [
        {
          purl: 'pkg:npm/%40scope/one@1.0.0',
          licenses: [{ license: { id: 'MIT' } }],
          hashes: [{ alg: 'SHA-512', content: '00ff' }],
        },
        { purl: 'pkg:npm/two@2.0.0', licenses: [{ expression: '(MIT OR GPL-2.0)' }] },
      ],
    })
  })

  it('is the same for the same, and another one for anything else', () => {
    expect(sbomText(readManifest(), [one], 0)).toBe(sbomText(readManifest(), [one], 0))
    expect(bom([one]).serialNumber).not.toBe(bom([two]).serialNumber)
    expect(bom([one]).serialNumber).not.toBe(bom([one], 1).serialNumber)
  })
})

describe('the notices', () => {
  it('have each component, and a text that several share once', () => {
    const text = noticesText([one, two, { ...one, name: 'bare', license: 'ISC', notices: [] }])
    expect(text).toContain('@scope/one 1.0.0 (MIT)\ntwo 2.0.0 ((MIT OR GPL-2.0))\n\nCopyright one')
    expect(text.match(/Copyright one/g)).toHaveLength(1)
    expect(text).toContain('bare 1.0.0 (ISC)\n\nLicence: ISC.')
  })
})

describe('terms', () => {
  it('of which one choice can be met are fine', () => {
    expect(() => refuseForeignTerms([one, two, { ...one, license: 'MIT AND ISC' }])).not.toThrow()
  })

  it.each(['GPL-3.0', 'MIT AND GPL-2.0', 'SEE LICENSE IN FILE'])(
    '%s is for somebody to look at',
    (license) => {
      expect(() => refuseForeignTerms([one, { ...two, license }])).toThrow(`two (${license})`)
    },
  )

  it('of all dependencies that the program ships are accepted', () => {
    expect(() => refuseForeignDependencies()).not.toThrow()
  })

  it('of a dependency of the tests alone do not matter', () => {
    const lock = { 'node_modules/a': { version: '1.0.0', license: 'GPL-3.0' } }
    expect(() => refuseForeignDependencies(lock)).toThrow('a (GPL-3.0)')
    const ofTests = { 'node_modules/a': { ...lock['node_modules/a'], dev: true } }
    expect(() => refuseForeignDependencies(ofTests)).not.toThrow()
  })
})
