import { X509Certificate } from 'node:crypto'
import { expect, it } from 'vitest'
import {
  ClusterAuthority,
  createAuthority,
  fingerprintOf,
  requestFor,
} from '../../../../src/gateway/cluster/peers/cluster-authority.ts'
import { nodeName, nodeOf } from '../../../../src/gateway/cluster/peers/node-name.ts'
import { createPrivateKeyPem } from '../../../../src/gateway/records/private-key.ts'

const NOW = Date.UTC(2030, 0, 1)

async function makeNode(nodeId = 'nd_1') {
  const pem = await createAuthority(NOW)
  const authority = await ClusterAuthority.open(pem)
  const keyPem = await createPrivateKeyPem()
  const leaf = new X509Certificate(await authority.issue(nodeId, await requestFor(keyPem), NOW))
  return { pem, authority, leaf, ca: new X509Certificate(authority.certPem) }
}

it('issues certificates that name their node and nothing else', async () => {
  const { leaf, ca, authority } = await makeNode('nd_2Xy')
  expect(nodeOf(leaf)).toBe('nd_2Xy')
  expect(leaf.subjectAltName).toBe(`URI:${nodeName('nd_2Xy')}`)
  expect(leaf.ca).toBe(false)
  expect(leaf.verify(ca.publicKey)).toBe(true)
  expect(authority.fingerprint).toBe(fingerprintOf(ca))
})

it.each([
  'URI:device-agent:node:',
  'URI:device-agent:node:a, DNS:x',
  'DNS:device-agent:node:a',
  undefined,
])('takes %s for nobody', (subjectAltName) => {
  expect(nodeOf({ subjectAltName })).toBeUndefined()
})

it('gives no id a name that could be read as two', () => {
  expect(() => nodeName('a, DNS:b')).toThrow('letters')
})

it('takes the key of nobody who does not have it', async () => {
  const { authority } = await makeNode()
  const request = await requestFor(await createPrivateKeyPem())
  const der = Buffer.from(request.replace(/-----[^-]+-----/g, ''), 'base64')
  // The last byte is of the signature.
  der.writeUInt8(der.readUInt8(der.length - 1) ^ 1, der.length - 1)
  const label = 'CERTIFICATE REQUEST'
  const forged = `-----BEGIN ${label}-----\n${der.toString('base64')}\n-----END ${label}-----\n`
  await expect(authority.issue('nd_1', forged, NOW)).rejects.toThrow(TypeError)
  await expect(authority.issue('nd_1', 'none', NOW)).rejects.toThrow(TypeError)
})

it('refuses a key that is another one', async () => {
  const [{ pem }, { pem: other }] = [await makeNode(), await makeNode()]
  const mixed = { certPem: pem.certPem, keyPem: other.keyPem }
  await expect(ClusterAuthority.open(mixed)).rejects.toThrow('does not match its key')
})
