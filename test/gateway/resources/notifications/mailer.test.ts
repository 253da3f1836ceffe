import { describe, expect, it } from 'vitest'
import { Mailer } from '../../../../src/gateway/resources/notifications/mailer.ts'
import { readValue } from '../../../../src/settings/forms.ts'
import { smtpUrl } from '../../../../src/settings/smtp-url.ts'
import { makeCertificate } from '../../../helpers/made-certificate.ts'
import { startSmtpServer } from '../../../helpers/smtp-server.ts'

const PASSWORD = 'pass word/with:signs'
const USER = 'ops@site.example'
const SIGNED_IN = `${encodeURIComponent(USER)}:${encodeURIComponent(PASSWORD)}@`

const authority = await makeCertificate({ isCa: true, commonName: 'authority' })
const ca = authority.certPem
const certificate = await makeCertificate({ names: ['localhost'], issuer: authority })

const mail = (change = {}) => ({
  to: ['a@site.example', 'b@site.example'],
  subject: 'Kühlhaus is offline',
  text: 'Since 10:00.\n.\nA line with a dot before it.\n',
  id: 'abc123',
  ...change,
})

function send(url: string, { change = {}, signal = new AbortController().signal } = {}) {
  const settings = { server: readValue(smtpUrl, url), from: 'gateway@site.example' }
  return new Mailer(settings, { ca }).send(mail(change), signal)
}

describe('a mail', () => {
  it.each(['implicit', 'starttls'] as const)('goes over verified TLS (%s)', async (tls) => {
    const server = await startSmtpServer({ tls, certificate, password: PASSWORD })
    const scheme = tls === 'implicit' ? 'smtps' : 'smtp'
    const attempt = await send(`${scheme}://${SIGNED_IN}localhost:${server.port}`)
    expect(attempt).toEqual({ isTaken: true, status: 250, text: 'Delivered.' })
    const [taken] = server.mails
    expect(taken).toMatchObject({
      from: 'gateway@site.example',
      to: ['a@site.example', 'b@site.example'],
      isEncrypted: true,
      user: USER,
      text: 'Since 10:00.\n.\nA line with a dot before it.\n',
    })
    expect(taken?.header('message-id')).toBe('<abc123@site.example>')
    expect(taken?.header('auto-submitted')).toBe('auto-generated')
    expect(taken?.header('content-type')).toMatch(/^text\/plain/)
  })

  it('is not sent to a server with another name or authority', async () => {
    const other = await makeCertificate({ names: ['mail.example'], issuer: authority })
    const own = await makeCertificate({ names: ['localhost'] })
    for (const [wrong, reason] of [
      [other, /does not match certificate's altnames/],
      [own, /self-signed certificate/],
    ] as const) {
      for (const tls of ['implicit', 'starttls'] as const) {
        const server = await startSmtpServer({ tls, certificate: wrong, password: PASSWORD })
        const scheme = tls === 'implicit' ? 'smtps' : 'smtp'
        const attempt = await send(`${scheme}://${SIGNED_IN}localhost:${server.port}`)
        expect(attempt).toMatchObject({ isTaken: false, status: null })
        expect(attempt.text).toMatch(reason)
        expect(server.lines.join()).not.toContain('AUTH')
        expect(server.mails).toEqual([])
      }
    }
  })

  it('does not fall back to a connection without TLS', async () => {
    const server = await startSmtpServer({ password: PASSWORD })
    const attempt = await send(`smtp://${SIGNED_IN}localhost:${server.port}`)
    expect(attempt.isTaken).toBe(false)
    expect(server.lines.filter((line) => /^(AUTH|MAIL)/.test(line))).toEqual([])
  })

  it('goes without TLS to a server of the machine that is set so', async () => {
    const server = await startSmtpServer()
    const { isTaken } = await send(`smtp://127.0.0.1:${server.port}?tls=off`)
    expect(isTaken).toBe(true)
    expect(server.mails[0]?.isEncrypted).toBe(false)
  })

  it('reports the exact answer, and never the password', async () => {
    const server = await startSmtpServer({
      tls: 'starttls',
      certificate,
      password: PASSWORD,
      answer: () => `554 5.7.1 ${PASSWORD} is spam`,
    })
    const url = `smtp://${SIGNED_IN}localhost:${server.port}`
    const { text } = await send(url)
    expect(text).toBe(
      `The mail server localhost:${server.port} answered: 554 5.7.1 [secret] is spam.`,
    )
    const strict = await startSmtpServer({ tls: 'starttls', certificate, password: 'another' })
    const refused = await send(`smtp://${SIGNED_IN}localhost:${strict.port}`)
    expect(refused).toMatchObject({ isTaken: false, status: 535 })
    expect(refused.text).toContain('535 5.7.8 authentication failed')
  })

  it('names recipients that the server refuses', async () => {
    const server = await startSmtpServer({ refusedRecipients: ['b@site.example'] })
    const attempt = await send(`smtp://127.0.0.1:${server.port}?tls=off`)
    expect(attempt).toMatchObject({
      isTaken: true,
      text: 'Delivered. Not accepted for b@site.example.',
    })
    expect(server.mails[0]?.to).toEqual(['a@site.example'])
  })

  it('names a server that is away, and ends with the gateway', async () => {
    const server = await startSmtpServer({ answer: () => 'never' })
    const stop = new AbortController()
    const url = `smtp://127.0.0.1:${server.port}?tls=off`
    const sending = send(url, { signal: stop.signal })
    stop.abort()
    expect((await sending).isTaken).toBe(false)
    await server.stop()
    const { text } = await send(url)
    expect(text).toContain(`The mail server 127.0.0.1:${server.port} did not take the mail`)
    expect(text).toContain('ECONNREFUSED')
  })

  it('has the header that was meant, whatever a name contains', async () => {
    const server = await startSmtpServer()
    const subject = 'cam\r\nBcc: evil@site.example\r\n\r\n<script> is offline'
    await send(`smtp://127.0.0.1:${server.port}?tls=off`, { change: { subject } })
    const [taken] = server.mails
    expect(taken?.header('bcc')).toBeUndefined()
    expect(taken?.to).toEqual(['a@site.example', 'b@site.example'])
    expect(taken?.text).toBe(mail().text)
  })
})

describe('GATEWAY_SMTP_URL', () => {
  it.each([
    ['smtp://mail.example', { port: 587, tls: 'starttls', user: undefined }],
    ['smtps://u:p%40ss@mail.example', { port: 465, tls: 'implicit', user: 'u' }],
    ['smtp://127.0.0.1:25?tls=off', { host: '127.0.0.1', port: 25, tls: 'off' }],
    ['smtp://[::1]:25?tls=off', { host: '::1' }],
  ])('reads %s', (url, server) => {
    expect(readValue(smtpUrl, url)).toMatchObject(server)
  })

  it.each([
    ['mail.example:587', 'must be smtp://'],
    ['smtp://user@mail.example', 'user and password belong together'],
    ['smtp://mail.example/x', 'must be smtp://'],
    ['smtp://mail.example?tls=off', 'only for smtp:// and a server on this machine'],
    ['smtp://127.0.0.1?verify=no', 'unknown parameter'],
    ['smtp://u:100%@mail.example', 'write a literal % as %25'],
  ])('refuses %s', (url, problem) => {
    expect(smtpUrl.read(url)).toMatchObject({ message: expect.stringContaining(problem) })
  })
})
