import { createPrivateKey, generateKeyPairSync } from 'node:crypto'
import { beforeAll, describe, expect, it } from 'vitest'
import { checkCovers, checkUpload } from '../../../src/gateway/certificates/uploaded-certificate.ts'
import { ServiceError } from '../../../src/gateway/records/service-error.ts'
import {
  type CertificateWish,
  type MadeCertificate,
  makeCertificate,
} from '../../helpers/made-certificate.ts'

const NAMES = ['shop.test', '*.shop.test']
const DAY_MS = 86_400_000

let root: MadeCertificate
let intermediate: MadeCertificate
let leaf: MadeCertificate
beforeAll(async () => {
  root = await makeCertificate({ commonName: 'root', isCa: true })
  intermediate = await makeCertificate({ commonName: 'intermediate', isCa: true, issuer: root })
  leaf = await makeCertificate({ names: NAMES, issuer: intermediate })
})

const check = (certPem: string, keyPem = leaf.keyPem) =>
  checkUpload({ certPem, keyPem }, Date.now())
const made = async (wish: CertificateWish) => {
  const { certPem, keyPem } = await makeCertificate({ names: NAMES, issuer: intermediate, ...wish })
  return [certPem + intermediate.certPem, keyPem] as const
}

describe('an uploaded certificate', () => {
  it('is taken with its chain, with or without the root, and with text around it', () => {
    const chain = leaf.certPem + intermediate.certPem
    for (const pem of [chain, chain + root.certPem, `Subject: x\r\n${chain}\nend`]) {
      const { certPem, keyPem } = check(pem)
      expect(certPem.startsWith(leaf.certPem)).toBe(true)
      expect(createPrivateKey(keyPem).equals(createPrivateKey(leaf.keyPem))).toBe(true)
    }
  })

  it('is taken with RSA, with a key in the forms of OpenSSL, and when it signs itself', async () => {
    const [certPem, keyPem] = await made({ rsaBits: 2_048 })
    check(certPem, createPrivateKey(keyPem).export({ type: 'pkcs1', format: 'pem' }).toString())
    const sec1 = createPrivateKey(leaf.keyPem).export({ type: 'sec1', format: 'pem' }).toString()
    check(leaf.certPem + intermediate.certPem, sec1)
    const own = await makeCertificate({ names: NAMES, isCa: true })
    check(own.certPem, own.keyPem)
  })

  it.each<[string, RegExp, () => Promise<readonly [string, string?]> | readonly [string, string?]]>(
    [
      [
        'garbage',
        /contains no certificate in PEM.*openssl x509 -inform der/,
        () => ['\u0000garbage'],
      ],
      [
        'a block that is not a certificate',
        /Certificate 1 in certificate_pem cannot be read/,
        () => ['-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----'],
      ],
      ['too much text', /has 40001 characters; at most 40000/, () => ['x'.repeat(40_001)]],
      [
        'a chain of 30',
        /has 30 certificates; at most 10/,
        () => [leaf.certPem + intermediate.certPem.repeat(29)],
      ],
      ['the key in the wrong field', /contains a private key/, () => [leaf.certPem + leaf.keyPem]],
      [
        'the CA first',
        /of a CA. Put the certificate of the domain first/,
        () => [intermediate.certPem + leaf.certPem],
      ],
      [
        'another issuer',
        /not in order: root did not issue shop.test/,
        () => [leaf.certPem + root.certPem],
      ],
      [
        'no intermediate',
        /incomplete: the certificate of the issuer intermediate is missing.*http:\/\/ca\.test\/i\.crt/,
        async () => {
          const { certPem, keyPem } = await makeCertificate({
            ...{ names: NAMES, issuer: intermediate, issuerUrl: 'http://ca.test/i.crt' },
          })
          return [certPem, keyPem]
        },
      ],
      [
        'an expired certificate',
        /shop.test has expired on \d{4}-\d\d-\d\d/,
        () => made({ notBefore: Date.now() - 9 * DAY_MS, notAfter: Date.now() - 1_000 }),
      ],
      [
        'a certificate of the future',
        /not valid before/,
        () => made({ notBefore: Date.now() + DAY_MS }),
      ],
      ['no names', /no DNS names/, () => made({ names: [] })],
      [
        'thousands of names',
        /300 DNS names; at most 250/,
        () => made({ names: Array.from({ length: 300 }, (_, n) => `n${n}.test`) }),
      ],
      ['a weak key', /rsa 1024 bits. Use RSA with 2048/, () => made({ rsaBits: 1_024 })],
      [
        'another key',
        /does not match the certificate/,
        () => [leaf.certPem + intermediate.certPem, root.keyPem],
      ],
      [
        'an encrypted key',
        /encrypted. Decrypt it with: openssl pkey/,
        () => {
          const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
          const pem = privateKey.export({
            ...{ type: 'pkcs8', format: 'pem', cipher: 'aes-256-cbc', passphrase: 'x' },
          })
          return [leaf.certPem + intermediate.certPem, pem.toString()]
        },
      ],
      [
        'a certificate as the key',
        /private_key_pem contains no private key/,
        () => [leaf.certPem + intermediate.certPem, leaf.certPem],
      ],
      [
        'a damaged key',
        /private_key_pem cannot be read/,
        () => [leaf.certPem + intermediate.certPem, leaf.keyPem.replace('M', '')],
      ],
    ],
  )('is refused with %s', async (_what, reason, given) => {
    const [certPem, keyPem = leaf.keyPem] = await given()
    const refusal = () => check(certPem, keyPem)
    expect(refusal).toThrow(ServiceError)
    expect(refusal).toThrow(reason)
    try {
      refusal()
    } catch (error) {
      expect(String(error)).not.toContain(keyPem.split('\n')[1])
    }
  })

  it('is for domains that its names cover, while it is valid', () => {
    const at = Date.now()
    for (const name of ['shop.test', '*.shop.test', 'cam.shop.test']) {
      checkCovers(leaf.certPem, name, at)
    }
    for (const name of ['other.test', '*.cam.shop.test', 'a.b.shop.test', '*.test']) {
      expect(() => checkCovers(leaf.certPem, name, at), name).toThrow(
        `does not cover ${name}. Its names are shop.test, *.shop.test`,
      )
    }
    expect(() => checkCovers(leaf.certPem, 'shop.test', at + 91 * DAY_MS)).toThrow('has expired')
  })
})
