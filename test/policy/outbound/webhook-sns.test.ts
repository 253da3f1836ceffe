// Has to come first: what the X.509 library is built on looks for it at import.
import 'reflect-metadata'
import { generateKeyPairSync, KeyObject, sign, webcrypto } from 'node:crypto'
import * as x509 from '@peculiar/x509'
import { describe, expect, it } from 'vitest'
import { HeaderList } from '../../../src/policy/exchange/header-list.ts'
import { SnsVerifier } from '../../../src/policy/outbound/webhook-sns.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'
import { createTlsFixture } from '../../helpers/tls-fixture.ts'

const OWNER = '123456789012'
const NOW = Date.UTC(2030, 0, 1)
const placeOf = (number: number) =>
  `https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-${number.toString(16).padStart(32, '0')}.pem`

const NOTIFICATION = {
  Type: 'Notification',
  MessageId: '22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324',
  TopicArn: `arn:aws:sns:eu-west-1:${OWNER}:doors`,
  Subject: 'A door',
  Message: 'is open',
  Timestamp: '2029-12-31T23:59:00.000Z',
  SignatureVersion: '2',
  SigningCertURL: placeOf(1),
}

/** As Amazon writes it down: one line for the name and one for the value. */
function textOf(message: Record<string, string>): string {
  const names =
    message.Type === 'Notification'
      ? ['Message', 'MessageId', 'Subject', 'Timestamp', 'TopicArn', 'Type']
      : ['Message', 'MessageId', 'SubscribeURL', 'Timestamp', 'Token', 'TopicArn', 'Type']
  return names.flatMap((name) => (name in message ? `${name}\n${message[name]}\n` : [])).join('')
}

const RSA = {
  ...{ name: 'RSASSA-PKCS1-v1_5', hash: 'SHA-256', modulusLength: 2_048 },
  publicExponent: new Uint8Array([1, 0, 1]),
}

async function createAmazon() {
  const keys = await webcrypto.subtle.generateKey(RSA, true, ['sign', 'verify'])
  const certificate = await x509.X509CertificateGenerator.createSelfSigned({
    ...{ name: 'CN=sns.amazonaws.com', keys, signingAlgorithm: RSA },
  })
  return { certPem: certificate.toString('pem'), key: KeyObject.from(keys.privateKey) }
}
const AMAZON = await createAmazon()

function startSns(certificate = AMAZON.certPem) {
  const clock = new ManualClock()
  const asked: string[] = []
  let isThere = true
  const verifier = new SnsVerifier({
    clock,
    read: async ({ href }) => {
      asked.push(href)
      if (!isThere) throw new Error('It is not there.')
      return Buffer.from(certificate)
    },
  })
  const signed = (changes: Record<string, string> = {}, key = AMAZON.key) => {
    const message = { ...NOTIFICATION, ...changes }
    const digest = message.SignatureVersion === '1' ? 'sha1' : 'sha256'
    const signature = sign(digest, Buffer.from(textOf(message)), key).toString('base64')
    return { ...message, Signature: signature }
  }
  const find = (message: unknown, now = NOW) =>
    verifier.findFailure({
      method: 'POST',
      headers: new HeaderList([]),
      url: 'https://hooks.site.test/',
      body: Buffer.from(typeof message === 'string' ? message : JSON.stringify(message)),
      secret: OWNER,
      now,
    })
  const leave = (there: boolean) => {
    isThere = there
  }
  return { clock, asked, signed, find, leave }
}

describe('a message of Amazon SNS', () => {
  it('holds as Amazon signed it, by either digest, and with one look at the certificate', async () => {
    const { asked, signed, find } = startSns()
    expect(await find(signed())).toBeUndefined()
    expect(await find(signed({ SignatureVersion: '1' }))).toBeUndefined()
    const { Subject: _none, ...plain } = NOTIFICATION
    expect(await find({ ...signed(plain), Subject: undefined })).toMatch(/does not match the body/)
    const confirmation = {
      ...{ Type: 'SubscriptionConfirmation', Token: '2336412f', Message: 'You have chosen' },
      SubscribeURL: 'https://sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription',
    }
    expect(await find(signed(confirmation))).toBeUndefined()
    expect(await find(signed({ ...confirmation, Type: 'UnsubscribeConfirmation' }))).toBeUndefined()
    expect(asked).toEqual([placeOf(1)])
  })

  it('does not hold when something of it is another, or is signed by others', async () => {
    const { signed, find } = startSns()
    for (const name of ['Message', 'Subject', 'MessageId', 'Signature']) {
      expect(await find({ ...signed(), [name]: 'other' })).toMatch(/does not match the body/)
    }
    const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2_048 })
    expect(await find(signed({}, privateKey))).toMatch(/does not match the body/)
    for (const body of ['', 'null', '[]', '{}', '{"Type":1}']) {
      expect(await find(body)).toMatch(/does not match the body/)
    }
    expect(await find(signed({ SignatureVersion: '3' }))).toMatch(/does not match the body/)
  })

  it.each([
    'https://sns.eu-west-1.amazonaws.com.evil.test/SimpleNotificationService-0123456789abcdef.pem',
    'https://evil.test/sns.eu-west-1.amazonaws.com/SimpleNotificationService-0123456789abcdef.pem',
    'http://sns.eu-west-1.amazonaws.com/SimpleNotificationService-0123456789abcdef.pem',
    'https://u@sns.eu-west-1.amazonaws.com/SimpleNotificationService-0123456789abcdef.pem',
    'https://s3.eu-west-1.amazonaws.com/SimpleNotificationService-0123456789abcdef.pem',
    'https://sns.eu-west-1.amazonaws.com/?Action=Publish',
  ])('is not looked up at %s', async (SigningCertURL) => {
    const { asked, signed, find } = startSns()
    expect(await find(signed({ SigningCertURL }))).toMatch(/does not match the body/)
    expect(asked).toEqual([])
  })

  it('is of a topic of the right owner, and no older than an hour', async () => {
    const { asked, signed, find } = startSns()
    const TopicArn = 'arn:aws:sns:eu-west-1:210987654321:doors'
    expect(await find(signed({ TopicArn }))).toBe('The topic belongs to another owner.')
    expect(await find(signed(), NOW + 3_600_000)).toMatch(/too old/)
    expect(await find(signed({ Timestamp: 'today' }))).toMatch(/too old/)
    expect(asked).toEqual([])
  })

  it('waits a while before it looks for a certificate again that was not there', async () => {
    const { clock, asked, signed, find, leave } = startSns()
    leave(false)
    expect(await find(signed())).toMatch(/could not be read\. It is not there\./)
    expect(await find(signed())).toMatch(/read again soon/)
    expect(asked).toHaveLength(1)
    leave(true)
    await clock.advance(30_000)
    expect(await find(signed())).toBeUndefined()
  })

  it('keeps eight certificates, and those that were there before those that were not', async () => {
    const { asked, signed, find, leave } = startSns()
    expect(await find(signed())).toBeUndefined()
    leave(false)
    for (let number = 2; number < 30; number += 1) {
      await find(signed({ SigningCertURL: placeOf(number) }))
    }
    expect(await find(signed())).toBeUndefined()
    expect(asked.filter((place) => place === placeOf(1))).toHaveLength(1)
    leave(true)
    for (let number = 30; number < 40; number += 1) {
      expect(await find(signed({ SigningCertURL: placeOf(number) }))).toBeUndefined()
    }
    expect(await find(signed())).toBeUndefined()
    expect(asked.filter((place) => place === placeOf(1))).toHaveLength(2)
  })

  it('asks for four certificates at once at most', async () => {
    const { asked, signed, find } = startSns()
    const found = await Promise.all(
      [1, 2, 3, 4, 5, 6].map((number) => find(signed({ SigningCertURL: placeOf(number) }))),
    )
    expect(found.filter((failure) => failure === undefined)).toHaveLength(4)
    expect(asked).toHaveLength(4)
  })

  it('takes no certificate for one that is none, or has another kind of key', async () => {
    const { signed, find } = startSns('<html>')
    expect(await find(signed())).toMatch(/could not be read/)
    const { certPem } = await createTlsFixture()
    const other = startSns(certPem)
    expect(await other.find(other.signed())).toMatch(
      /could not be read. The certificate has no RSA key/,
    )
  })
})
