import { createHash } from 'node:crypto'
import type { Component } from './components.ts'
import type { Manifest } from './project.ts'

/**
 * The bill of materials as CycloneDX 1.6 JSON. Its serial number comes from its content and its time
 * from the sources, so that two builds say the same.
 */
export function sbomText(
  { name, version, description, license }: Manifest,
  components: readonly Component[],
  date: number,
): string {
  const own = `pkg:generic/${name}@${version}`
  const listed = components.map((component) => ({
    type: component.name.startsWith('node-linux-') ? 'platform' : 'library',
    'bom-ref': purlOf(component),
    name: component.name,
    version: component.version,
    purl: purlOf(component),
    licenses: licensesOf(component.license),
    ...(component.integrity && { hashes: [hashOf(component.integrity)] }),
  }))
  const bom = {
    bomFormat: 'CycloneDX',
    specVersion: '1.6',
    version: 1,
    metadata: {
      timestamp: new Date(date * 1_000).toISOString(),
      component: {
        type: 'application',
        'bom-ref': own,
        name,
        version,
        description,
        purl: own,
        licenses: licensesOf(license),
      },
    },
    components: listed,
    dependencies: [
      { ref: own, dependsOn: listed.map((component) => component['bom-ref']) },
      ...listed.map((component) => ({ ref: component['bom-ref'] })),
    ],
  }
  const serialNumber = `urn:uuid:${uuidOf(JSON.stringify(bom))}`
  return `${JSON.stringify({ ...bom, serialNumber }, null, 2)}\n`
}

function purlOf({ name, version, purl }: Component): string {
  return purl ?? `pkg:npm/${name.replace('@', '%40')}@${version}`
}

function licensesOf(license: string): object[] {
  return / (?:OR|AND|WITH) /.test(license)
    ? [{ expression: license }]
    : [{ license: { id: license } }]
}

function hashOf(integrity: string): object {
  const [algorithm = '', digest = ''] = integrity.split(/-(.*)/)
  const content = Buffer.from(digest, 'base64').toString('hex')
  return { alg: algorithm.replace('sha', 'SHA-'), content }
}

/** A UUID of version 8, RFC 9562 section 5.8: from the first bytes of a digest. */
function uuidOf(text: string): string {
  const bytes = createHash('sha256').update(text).digest().subarray(0, 16)
  bytes.writeUInt8((bytes.readUInt8(6) & 0x0f) | 0x80, 6)
  bytes.writeUInt8((bytes.readUInt8(8) & 0x3f) | 0x80, 8)
  return bytes.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5')
}
