import { describe, expect, it } from 'vitest'
import { Mailer } from '../../../../src/gateway/resources/notifications/mailer.ts'
import { readValue } from '../../../../src/settings/forms.ts'
import { smtpUrl } from '../../../../src/settings/smtp-url.ts'
import { startChat } from '../../../helpers/chat-receiver.ts'
import { startManagementApi } from '../../../helpers/management-client.ts'
import { startSmtpServer } from '../../../helpers/smtp-server.ts'

const PATH = '/notification_channels'
const SLACK = { name: 'ops', kind: 'slack', url: 'https://hooks.slack.com/services/T0/B0/key' }
const MAIL = { name: 'night shift', kind: 'email', addresses: ['ops@site.example'] }

const mailerAt = (port: number) =>
  new Mailer({
    server: readValue(smtpUrl, `smtp://127.0.0.1:${port}?tls=off`),
    from: 'gateway@site.example',
  })

describe('notification channels', () => {
  it('never show the key of a URL again, in no answer and not in the audit trail', async () => {
    const { call, baseUrl, captured } = await startManagementApi()
    const created = await call('POST', PATH, { body: SLACK })
    expect(created.status).toBe(201)
    const { id } = created.body
    expect(created.body).toEqual({
      id: expect.stringMatching(/^nc_[0-9A-Za-z]{27}$/),
      uri: `${baseUrl}${PATH}/${id}`,
      created_at: expect.any(String),
      name: 'ops',
      kind: 'slack',
      addresses: [],
      url: 'https://hooks.slack.com/[secret]',
      event_types: expect.arrayContaining(['device.offline', 'gateway.degraded']),
      tags: [],
      offline_s: 120,
      quiet_times: null,
      time_zone: 'UTC',
      owner_id: null,
      active: true,
      last_sent_at: null,
      failures: 0,
      problem: null,
      next_try_at: null,
    })
    const change = { quiet_times: { from: '22:00', to: '07:00' }, time_zone: 'Europe/Berlin' }
    const changed = await call('PATCH', `${PATH}/${id}`, { body: change })
    expect(changed.body).toMatchObject({ ...change, url: 'https://hooks.slack.com/[secret]' })
    const { entries } = (await call('GET', '/audit')).body
    expect(entries.map(({ action }: { action: string }) => action)).toEqual([
      'notification_channel.update',
      'notification_channel.create',
    ])
    expect(JSON.stringify([entries, changed.body])).not.toContain('T0/B0')
    expect(captured.text()).not.toContain('T0/B0')
    expect((await call('DELETE', `${PATH}/${id}`)).status).toBe(204)
    expect((await call('GET', PATH)).body.notification_channels).toEqual([])
  })

  it.each([
    [
      { ...MAIL, addresses: ['ops@site.example\r\nBcc: evil@site.example'] },
      'of the field addresses',
    ],
    [{ ...MAIL, addresses: ['a@b.example, c@d.example'] }, 'of the field addresses'],
    [{ ...MAIL, addresses: [] }, 'addresses'],
    [{ ...MAIL, url: 'https://a.example/x' }, 'has addresses and no url'],
    [{ ...SLACK, addresses: ['a@b.example'] }, 'has a url and no addresses'],
    [{ ...SLACK, url: undefined }, 'needs a url'],
    [{ ...SLACK, url: 'ftp://a.example/x' }, 'http or https URL'],
    [{ ...SLACK, url: 'https://hooks.slack.com/[secret]' }, 'the whole URL'],
    [{ ...SLACK, url: 'http://169.254.169.254/' }, 'connections to 169.254.0.0/16 are always'],
    [{ ...SLACK, url: 'http://[fe80::1]/' }, 'connections to fe80::/10 are always blocked'],
    [{ ...SLACK, kind: 'telegram' }, '?chat_id='],
    [{ ...SLACK, name: 'a\nb' }, 'one line'],
    [{ ...SLACK, event_types: ['device.online'] }, 'also needs device.offline'],
    [{ ...SLACK, quiet_times: { from: '25:00', to: '07:00' } }, 'a time such as'],
    [{ ...SLACK, quiet_times: { from: '07:00', to: '07:00' } }, 'must differ'],
    [{ ...SLACK, time_zone: 'Mars/Olympus' }, 'a time zone'],
  ])('refuse %j', async (body, problem) => {
    const { call } = await startManagementApi({ mailer: mailerAt(1) })
    const { status, body: refusal } = await call('POST', PATH, { body })
    expect(status).toBe(400)
    expect(refusal.error_code).toBe('ERR_NGROK_215')
    expect(refusal.msg).toContain(problem)
  })

  it.each([
    [{ addresses: ['ops'] }, 'The entry "ops" of the field addresses is not valid: it must be an'],
    [{ addresses: [7] }, 'The entry 1 of the field addresses is not valid: it must be a string.'],
    [{ addresses: [] }, 'The field addresses is not valid: it must have at least 1 entry.'],
    [{ offline_s: 90_000 }, 'The field offline_s is not valid: it must be at most 86400.'],
    [{ name: undefined }, 'The field name is not valid: it is required.'],
    [{ kind: 'sms' }, 'The field kind is not valid: it must be one of "email", "slack", '],
    [{ tags: ['x'.repeat(100)] }, `The entry "${'x'.repeat(64)}" of the field tags is not valid`],
  ])('names the field and the entry that is not valid: %j', async (change, text) => {
    const { call } = await startManagementApi({ mailer: mailerAt(1) })
    const { body } = await call('POST', PATH, { body: { ...MAIL, ...change } })
    expect(body.msg).toContain(text)
  })

  it('of mails need a mail server', async () => {
    const { call } = await startManagementApi()
    const { body } = await call('POST', PATH, { body: MAIL })
    expect(body.msg).toContain('Set GATEWAY_SMTP_URL and GATEWAY_SMTP_FROM')
  })

  it('are tested at once, with the answer or the exact fault', async () => {
    const smtp = await startSmtpServer({
      answer: (count) => (count === 0 ? '250 2.0.0 queued' : '552 5.2.2 mailbox full'),
    })
    const { call } = await startManagementApi({ mailer: mailerAt(smtp.port) })
    const { id } = (await call('POST', PATH, { body: MAIL })).body
    const test = async () => (await call('POST', `${PATH}/${id}/test`)).body
    expect(await test()).toEqual({ ok: true, status: 250, text: 'Delivered.' })
    expect(smtp.mails[0]?.header('subject')).toBe('Test message')
    const failed = await test()
    expect(failed).toMatchObject({ ok: false, status: 552 })
    expect(failed.text).toContain('answered: 552 5.2.2 mailbox full')
    await smtp.stop()
    expect((await test()).text).toContain('ECONNREFUSED')
  })

  it('limit their tests', async () => {
    const chat = await startChat()
    const { call } = await startManagementApi({ mayDial: () => true })
    const body = { name: 'ops', kind: 'webhook', url: chat.url }
    const { id } = (await call('POST', PATH, { body })).body
    const tests = Array.from({ length: 7 }, () => call('POST', `${PATH}/${id}/test`))
    const statuses = (await Promise.all(tests)).map(({ status }) => status)
    expect(statuses.filter((status) => status === 429)).toHaveLength(2)
    expect(chat.attempts()).toBe(5)
  })

  it('belong to an account, which sees and makes no others, up to its quota', async () => {
    const { call, issuer } = await startManagementApi()
    const { id: ownerId } = await issuer.createBotUser({ name: 'a' })
    const { token: key } = await issuer.createApiKey({ ownerId, isOwnerOnly: true })
    const foreign = (await call('POST', PATH, { body: SLACK })).body
    const own = (await call('POST', PATH, { body: SLACK, key })).body
    expect(own.owner_id).toBe(ownerId)
    expect((await call('GET', PATH, { key })).body.notification_channels).toEqual([own])
    for (const [method, path] of [
      ['GET', ''],
      ['PATCH', ''],
      ['DELETE', ''],
      ['POST', '/test'],
    ] as const) {
      const body = method === 'PATCH' ? { body: { name: 'x' } } : {}
      const { status } = await call(method, `${PATH}/${foreign.id}${path}`, { key, ...body })
      expect(status).toBe(404)
    }
    for (let n = 1; n < 10; n += 1) await call('POST', PATH, { body: SLACK, key })
    expect((await call('POST', PATH, { body: SLACK, key })).body.error_code).toBe('ERR_NGROK_18021')
  })
})
