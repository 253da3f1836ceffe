import { describe, expect, it } from 'vitest'
import { Mailer } from '../../src/gateway/resources/notifications/mailer.ts'
import { readValue } from '../../src/settings/forms.ts'
import { smtpUrl } from '../../src/settings/smtp-url.ts'
import { startChat } from '../helpers/chat-receiver.ts'
import { hasChromium, openPage } from '../helpers/chromium.ts'
import {
  button,
  dialogButton,
  expectGoodView,
  field,
  goTo,
  line,
  openLine,
  PHONE,
  signIn,
} from '../helpers/console-page.ts'
import { startManagementApi } from '../helpers/management-client.ts'
import { startSmtpServer } from '../helpers/smtp-server.ts'

describe.runIf(hasChromium)('notifications in the console', () => {
  it('makes, tests, changes, pauses and deletes a channel', async () => {
    const smtp = await startSmtpServer({
      answer: (count) => (count === 0 ? '250 2.0.0 queued' : '552 5.2.2 mailbox full'),
    })
    const server = readValue(smtpUrl, `smtp://127.0.0.1:${smtp.port}?tls=off`)
    const mailer = new Mailer({ server, from: 'gateway@site.example' })
    const api = await startManagementApi({ mailer, mayDial: () => true })
    const { baseUrl, key, notifications } = api
    const newest = () => notifications.page({ limit: 1 })[0]
    const { page, complaints } = await openPage(PHONE, baseUrl)
    await signIn(page, key)
    await goTo(page, 'Notifications')
    await page.getByText('No notification channels').waitFor()
    await expectGoodView(page, 'notifications-none')
    await button(page, 'Create a channel').click()
    await field(page, 'Name').fill('Night <b>shift</b>')
    await field(page, 'Addresses or URL').fill('ops')
    await dialogButton(page, 'Create').click()
    await page.getByRole('alert').getByText('email address').waitFor()
    await field(page, 'Addresses or URL').fill('ops@site.example, boss@site.example')
    await field(page, 'Tags').fill('roof, cellar')
    await field(page, 'Quiet from').fill('22:00')
    await field(page, 'Quiet until').fill('07:00')
    await field(page, 'Time zone').fill('Europe/Berlin')
    await expectGoodView(page, 'notifications-form')
    await dialogButton(page, 'Create').click()
    await expect.poll(newest).toMatchObject({
      kind: 'email',
      addresses: ['ops@site.example', 'boss@site.example'],
      tags: ['roof', 'cellar'],
      offlineMs: 120_000,
      quietTimes: { from: '22:00', to: '07:00' },
      timeZone: 'Europe/Berlin',
    })
    const name = 'Night <b>shift</b>'
    const card = await openLine(page, name)
    await button(page, `Test ${name}`).click()
    await card.getByText('Test message sent. Delivered.').waitFor()
    await button(page, `Test ${name}`).click()
    await card.getByText('answered: 552 5.2.2 mailbox full').waitFor()
    await expectGoodView(page, 'notifications')
    await button(page, `Change ${name}`).click()
    await field(page, 'Quiet from').fill('')
    await field(page, 'Quiet until').fill('')
    await dialogButton(page, 'Save').click()
    await expect.poll(() => newest()?.quietTimes).toBeNull()
    await button(page, `Pause ${name}`).click()
    await line(page, name).getByText('Paused').waitFor()
    await button(page, `Delete ${name}`).click()
    await dialogButton(page, 'Delete channel').click()
    await page.getByText('No notification channels').waitFor()
    expect(complaints.filter((it) => !it.includes('400'))).toEqual([])
  })

  it('shows why a chat gets nothing, and never its key', async () => {
    const chat = await startChat(() => [410, 'channel_is_archived'])
    const api = await startManagementApi({ mayDial: () => true })
    const { baseUrl, key, call, database, events, clock, channelStates } = api
    const body = { name: 'ops', kind: 'slack', url: chat.url }
    const { id } = (await call('POST', '/notification_channels', { body })).body
    database.write(() =>
      events.append({
        at: clock.now(),
        type: 'gateway.degraded',
        ownerId: null,
        details: { node: { id: 'nd_1', name: 'gw' }, text: 'The disk is full.' },
      }),
    )
    await expect
      .poll(
        async () => {
          await clock.advance(5_000)
          return channelStates.get(id)?.failures
        },
        { timeout: 60_000 },
      )
      .toBeGreaterThan(0)
    const { page, complaints } = await openPage(PHONE, baseUrl)
    await signIn(page, key)
    await goTo(page, 'Notifications')
    await line(page, 'ops').getByText('Not delivered').waitFor()
    const card = await openLine(page, 'ops')
    await card.getByText('The receiver answered with 410 Gone.').waitFor()
    await card.getByText('Next try').waitFor()
    await expectGoodView(page, 'notifications-failing')
    await button(page, 'Change ops').click()
    expect(await page.content()).not.toContain('secret-key')
    await field(page, 'Name').fill('ops 2')
    await dialogButton(page, 'Save').click()
    await line(page, 'ops 2').waitFor()
    expect(api.notifications.page({ limit: 1 })[0]?.url).toBe(chat.url)
    expect(complaints).toEqual([])
  })
})
