import { describe, expect, it, onTestFinished } from 'vitest'
import type { EventType } from '../../../../src/gateway/records/event-store.ts'
import { Delivery } from '../../../../src/gateway/resources/notifications/delivery.ts'
import { Mailer } from '../../../../src/gateway/resources/notifications/mailer.ts'
import {
  type ChannelSettings,
  Notifications,
} from '../../../../src/gateway/resources/notifications/notifications.ts'
import { readValue } from '../../../../src/settings/forms.ts'
import { smtpUrl } from '../../../../src/settings/smtp-url.ts'
import { startChat } from '../../../helpers/chat-receiver.ts'
import { connectedAgent } from '../../../helpers/connected-agent.ts'
import { eventually } from '../../../helpers/eventually.ts'
import { openGatewayStores } from '../../../helpers/gateway-stores.ts'
import { startSmtpServer } from '../../../helpers/smtp-server.ts'

const SECOND = 1_000
const MINUTE = 60_000
const HOUR = 60 * MINUTE
const PRESENCE: readonly EventType[] = ['device.offline', 'device.online']

const CHANNEL: ChannelSettings = {
  ownerId: null,
  name: 'ops',
  kind: 'webhook',
  addresses: [],
  url: null,
  eventTypes: PRESENCE,
  tags: [],
  offlineMs: 2 * MINUTE,
  quietTimes: null,
  timeZone: 'UTC',
}

/** Midnight, 1 January 2030, UTC. */
const START = Date.UTC(2030, 0, 1)

function open({ folder, port }: { folder?: string; port?: number } = {}) {
  const server = readValue(smtpUrl, `smtp://127.0.0.1:${port ?? 1}?tls=off`)
  const mailer = new Mailer({ server, from: 'gateway@site.example' })
  const stores = openGatewayStores(folder, { mayDial: () => true, now: START, mailer })
  const { clock, database, events, notifications, channelStates } = stores
  const happen = (type: EventType, details: object = {}, ownerId: string | null = null) =>
    database.write(() => events.append({ at: clock.now(), type, ownerId, details: { ...details } }))
  const device = (name: string, tags: readonly string[] = []) => ({
    device: { id: `dv_${name}`, name, tags },
  })
  const goes = (name: string, tags?: readonly string[], ownerId: string | null = null) =>
    happen('device.offline', { ...device(name, tags), text: 'No power.' }, ownerId)
  const comes = (name: string, ownerId: string | null = null) =>
    happen('device.online', device(name), ownerId)
  const follow = (change: Partial<ChannelSettings>) =>
    notifications.create({ ...CHANNEL, ...change })
  /** Moves the clock in steps, with time for sockets and files in between. */
  const pass = async (ms: number) => {
    const step = Math.max(10 * SECOND, ms / 60)
    for (let passed = 0; passed < ms; passed += step) {
      await clock.advance(Math.min(step, ms - passed))
      await settled()
    }
  }
  const stateOf = (id: string) => channelStates.get(id)
  return { ...stores, happen, goes, comes, follow, pass, stateOf }
}

const settled = () => new Promise((resolve) => setTimeout(resolve, 2))

describe('a notification channel', () => {
  it('tells of an outage after its minimum time, then of the return', async () => {
    const { goes, comes, follow, pass } = open()
    const chat = await startChat()
    await follow({ url: chat.url })
    goes('cam')
    await pass(2 * MINUTE)
    expect(chat.posts).toEqual([])
    await pass(40 * SECOND)
    await chat.took(1)
    comes('cam')
    await pass(40 * SECOND)
    await chat.took(2)
    expect(chat.messages()).toEqual([
      {
        type: 'notification',
        title: 'cam is offline',
        text: 'cam is offline:\n- cam, offline since 2030-01-01 00:00 (UTC). No power.',
      },
      {
        type: 'notification',
        title: 'cam is back',
        text: 'cam is back:\n- cam, back since 2030-01-01 00:02 (UTC)',
      },
    ])
  })

  it('tells of no return without an outage, and of none that was short', async () => {
    const { goes, comes, follow, pass, notices } = open()
    const chat = await startChat()
    const { id } = await follow({ url: chat.url })
    comes('new')
    goes('cam')
    await pass(MINUTE)
    comes('cam')
    await pass(HOUR)
    expect(chat.attempts()).toBe(0)
    expect(notices.count(id)).toBe(0)
  })

  it('collects many devices in one message, and names the first of them', async () => {
    const { goes, comes, follow, pass } = open()
    const chat = await startChat()
    await follow({ url: chat.url })
    for (let n = 1; n <= 41; n += 1) goes(`cam-${n}`)
    await pass(3 * MINUTE)
    await chat.took(1)
    const [message] = chat.messages()
    expect(message?.title).toBe('41 devices are offline')
    const lines = message?.text.split('\n') ?? []
    expect(lines).toHaveLength(22)
    expect(lines.at(-1)).toBe('- and 21 more')
    for (let n = 1; n <= 3; n += 1) comes(`cam-${n}`)
    goes('door')
    await pass(3 * MINUTE)
    await chat.took(3)
    expect(chat.messages().map(({ title }) => title)).toEqual([
      '41 devices are offline',
      '3 devices are back',
      'door is offline',
    ])
  })

  it('reports a flapping device at most once an hour, and says so', async () => {
    const { goes, comes, follow, pass } = open()
    const chat = await startChat()
    await follow({ url: chat.url })
    for (let n = 0; n < 11; n += 1) {
      goes('cam')
      await pass(3 * MINUTE)
      comes('cam')
      await pass(2 * MINUTE)
    }
    // 55 minutes: one outage and its return.
    expect(chat.messages().map(({ title }) => title)).toEqual(['cam is offline', 'cam is back'])
    await pass(10 * MINUTE)
    await chat.took(3)
    const last = chat.messages()[2]
    expect(last?.title).toBe('cam was offline')
    expect(last?.text).toContain('10 outages since 2030-01-01 00:05')
    expect(last?.text).toContain('at most once in 60 minutes')
    goes('cam')
    await pass(10 * MINUTE)
    expect(chat.posts).toHaveLength(3)
    await pass(HOUR)
    expect(chat.messages()[3]?.title).toBe('cam is offline')
  })

  it('waits during quiet times, and sums up at their end', async () => {
    const { goes, comes, follow, pass, clock } = open()
    const chat = await startChat()
    // 23:00 to 07:00 in Berlin, where it is 01:00.
    const quietTimes = { from: '23:00', to: '07:00' }
    await follow({ url: chat.url, quietTimes, timeZone: 'Europe/Berlin' })
    goes('cam')
    goes('door')
    await pass(10 * MINUTE)
    comes('door')
    await pass(5 * HOUR)
    expect(chat.attempts()).toBe(0)
    await pass(55 * MINUTE)
    await chat.took(1)
    expect(new Date(clock.now()).getUTCHours()).toBe(6)
    expect(chat.messages()).toMatchObject([{ title: 'cam is offline, door was offline' }])
    expect(chat.messages()[0]?.text).toContain('offline since 2030-01-01 01:00 (Europe/Berlin)')
  })

  it('gets the types, tags and account that it is for', async () => {
    const { goes, happen, follow, pass, issuer } = open()
    const { id: ownerId } = await issuer.createBotUser({ name: 'a' })
    const chat = await startChat()
    const eventTypes: EventType[] = ['device.offline', 'certificate.expiring']
    await follow({ url: chat.url, ownerId, tags: ['roof'], eventTypes })
    goes('other-account', ['roof'])
    goes('cellar', ['cellar'], ownerId)
    goes('roof', ['x', 'roof'], ownerId)
    happen('device.refused', { ip: '192.0.2.1', text: 'no' }, ownerId)
    const domain = { domain: { id: 'rd_1', name: 'a.test' }, text: 'Renew it.' }
    happen('certificate.expiring', domain, ownerId)
    await pass(3 * MINUTE)
    await chat.took(2)
    expect(chat.messages()).toMatchObject([
      { title: 'The certificate of a.test ends soon' },
      { title: 'roof is offline' },
    ])
  })

  it('of an account names no device of another account that is refused', async () => {
    const { devices, follow, pass, issuer } = open()
    const [a, b] = await Promise.all([
      issuer.createBotUser({ name: 'a' }),
      issuer.createBotUser({ name: 'b' }),
    ])
    const { identity, ...session } = connectedAgent('1')
    const press = { ...identity, ownerId: b.id, deviceId: 'd1', hostname: 'press-7' }
    devices.came({ ...session, identity: press })
    await pass(MINUTE)
    const eventTypes: EventType[] = ['device.refused']
    const [ofOwner, ofA, ofB] = await Promise.all([startChat(), startChat(), startChat()])
    await follow({ url: ofOwner.url, eventTypes })
    await follow({ url: ofA.url, eventTypes, ownerId: a.id })
    await follow({ url: ofB.url, eventTypes, ownerId: b.id })
    // With authtokens of both accounts, then with an unknown authtoken.
    for (const ownerId of [a.id, b.id, null]) {
      devices.refused({ ownerId, deviceId: 'd1', ip: '192.0.2.9', code: 107, message: 'No.' })
    }
    await pass(2 * MINUTE)
    await ofOwner.took(1)
    const text = (count: number, name: string) =>
      Array<string>(count).fill(`- Refused: ${name} from 192.0.2.9: No.`)
    expect(ofA.messages().map((it) => it.text)).toEqual(text(1, 'd1'))
    expect(ofB.messages().map((it) => it.text)).toEqual(text(1, 'press-7'))
    const lines = ofOwner.messages().flatMap((it) => it.text.split('\n'))
    expect(lines.sort()).toEqual([...text(1, 'd1'), ...text(2, 'press-7')])
  })

  it('goes on after a restart where it was: nothing is lost, and nothing is sent twice', async () => {
    const chat = await startChat()
    const first = open()
    await first.follow({ url: chat.url })
    first.goes('cam')
    await first.pass(3 * MINUTE)
    await chat.took(1)
    first.comes('cam')
    first.goes('door')
    await first.pass(MINUTE / 4)
    await first.notifications.stop()
    first.database.close()
    const second = open({ folder: first.folder })
    await second.pass(6 * MINUTE)
    await chat.took(3)
    await second.pass(HOUR)
    expect(chat.messages().map(({ title }) => title)).toEqual([
      'cam is offline',
      'cam is back',
      'door is offline',
    ])
  })

  it('repeats no other event after a restart', async () => {
    const chat = await startChat()
    const first = open()
    await first.follow({ url: chat.url, eventTypes: ['device.refused'] })
    first.happen('device.refused', { ip: '192.0.2.1', text: 'no' })
    await first.pass(MINUTE)
    await chat.took(1)
    await first.notifications.stop()
    first.database.close()
    const second = open({ folder: first.folder })
    await second.pass(5 * MINUTE)
    expect(chat.attempts()).toBe(1)
  })

  it('retries with growing delays, shows the fault, and tells the latest state', async () => {
    const smtp = await startSmtpServer({ answer: (n) => (n < 3 ? '451 4.3.0 later' : '250 ok') })
    const { goes, comes, follow, pass, stateOf, clock } = open({ port: smtp.port })
    const { id } = await follow({ kind: 'email', addresses: ['ops@site.example'] })
    goes('cam')
    goes('door')
    await pass(2 * MINUTE + 30 * SECOND)
    await eventually(() => expect(stateOf(id)?.failures).toBe(1))
    expect(stateOf(id)?.problem).toContain('answered: 451 4.3.0 later')
    const waitMs = (stateOf(id)?.nextTryAt ?? 0) - clock.now()
    expect(waitMs).toBeGreaterThan(2_000)
    comes('door')
    await eventually(async () => {
      await clock.advance(SECOND)
      expect(smtp.mails).toHaveLength(1)
    })
    expect(smtp.attempts()).toBe(4)
    expect(smtp.mails[0]?.header('subject')).toBe('cam is offline, door was offline')
    await eventually(() =>
      expect(stateOf(id)).toMatchObject({ failures: 0, problem: null, nextTryAt: null }),
    )
  })

  it('repeats a mail that a kill left open with the same id', async () => {
    const smtp = await startSmtpServer()
    const first = open({ port: smtp.port })
    const { id } = await first.follow({ kind: 'email', addresses: ['ops@site.example'] })
    first.goes('cam')
    await first.pass(2 * MINUTE)
    const before = first.notices.due(id, first.clock.now(), 10)
    await first.pass(MINUTE)
    await smtp.took(1)
    await eventually(() => expect(first.stateOf(id)?.lastSentAt).not.toBeNull())
    // As if the kill had come before the mark.
    await first.database.change(() => {
      for (const notice of before) first.notices.replace(notice)
    })
    await first.notifications.stop()
    first.database.close()
    const second = open({ folder: first.folder, port: smtp.port })
    await second.pass(3 * MINUTE)
    const [one, two] = await smtp.took(2)
    expect(two?.header('message-id')).toBe(one?.header('message-id'))
  })

  it('repeats a mail that may have been accepted, before it tells news', async () => {
    const smtp = await startSmtpServer({ answer: (n) => (n === 0 ? 'cut' : '250 ok') })
    const { goes, comes, follow, pass, stateOf, clock } = open({ port: smtp.port })
    const { id } = await follow({ kind: 'email', addresses: ['ops@site.example'] })
    goes('cam')
    await pass(MINUTE)
    goes('door')
    await pass(90 * SECOND)
    await eventually(() => expect(stateOf(id)?.failures).toBe(1))
    comes('cam')
    await eventually(async () => {
      await clock.advance(SECOND)
      expect(smtp.mails).toHaveLength(2)
    })
    const idOf = (mail: string | undefined) => /^Message-ID: .*$/im.exec(mail ?? '')?.[0]
    expect(idOf(smtp.contents[0])).toContain('@site.example')
    expect(idOf(smtp.contents[1])).toBe(idOf(smtp.contents[0]))
    expect(idOf(smtp.contents[2])).not.toBe(idOf(smtp.contents[0]))
    expect(smtp.mails.map((mail) => mail.header('subject'))).toEqual([
      'cam is offline',
      'door is offline, cam is back',
    ])
  })

  it('reads events that it does not want once, also over restarts', async () => {
    const chat = await startChat()
    const first = open()
    const { id } = await first.follow({ url: chat.url, eventTypes: ['certificate.expiring'] })
    const flood = (from: number) =>
      first.database.write(() => {
        for (let n = from; n < from + 4_000; n += 1) {
          const details = { device: { id: `dv_${n}`, name: 'cam', tags: [] } }
          const at = first.clock.now()
          first.events.append({ at, type: 'device.offline', ownerId: null, details })
        }
      })
    for (const from of [0, 4_000, 8_000]) {
      flood(from)
      await first.pass(2 * MINUTE)
      await eventually(() => expect(first.stateOf(id)?.position).toBe(first.events.newest))
    }
    flood(12_000)
    await first.pass(10 * SECOND)
    await first.notifications.stop()
    expect(first.stateOf(id)?.position).toBeGreaterThan(12_000)
    first.database.close()
    const second = open({ folder: first.folder })
    second.happen('certificate.expiring', { domain: { name: 'a.test' }, text: 'Renew it.' })
    await second.pass(2 * MINUTE)
    await chat.took(1)
    expect(chat.messages()[0]?.title).toBe('The certificate of a.test ends soon')
    expect(second.captured.text()).not.toContain('events were dropped')
  })

  it('lets other work run while many channels read a long log', async () => {
    const { notifications, database, events, clock, channelStore, channelStates } = open()
    await notifications.release()
    const state = { position: 0, leftOut: 0, lastSentAt: null, failures: 0, problem: null }
    const ids = Array.from({ length: 20 }, (_, n) => `nc_${n}`)
    database.write(() => {
      for (const id of ids) {
        const eventTypes: EventType[] = ['certificate.expiring']
        channelStore.insert({ ...CHANNEL, id, eventTypes, isActive: true, createdAt: 0 })
        channelStates.insert({ ...state, id, nextTryAt: null })
      }
      for (let n = 0; n < 5_000; n += 1) {
        const details = { device: { id: `dv_${n}`, name: 'cam', tags: [] } }
        events.append({ at: clock.now(), type: 'device.offline', ownerId: null, details })
      }
    })
    const positions = () => ids.map((id) => channelStates.get(id)?.position ?? 0)
    notifications.reclaim()
    let rounds = 0
    while (Math.min(...positions()) < events.newest) {
      await new Promise((resolve) => setImmediate(resolve))
      rounds += 1
    }
    // One batch of 500 events in each round of the event loop.
    expect(rounds).toBeGreaterThan(100)
  })

  it('tells no old news after a change of its types and a restart', async () => {
    const chat = await startChat()
    const first = open()
    const channel = await first.follow({ url: chat.url, eventTypes: ['device.refused'] })
    first.happen('device.refused', { ip: '192.0.2.1', text: 'no' })
    await first.pass(MINUTE)
    await chat.took(1)
    first.goes('cam')
    await eventually(() => expect(first.stateOf(channel.id)?.position).toBe(first.events.newest))
    // Read, and not saved yet.
    first.goes('door')
    await first.pass(10 * SECOND)
    const newest = first.events.newest
    expect(first.stateOf(channel.id)?.position).toBeLessThan(newest)
    await first.notifications.update(channel, () => ({ eventTypes: PRESENCE }))
    expect(first.stateOf(channel.id)?.position).toBe(newest)
    await first.notifications.stop()
    first.database.close()
    const second = open({ folder: first.folder })
    await second.pass(10 * MINUTE)
    expect(chat.posts).toHaveLength(1)
  })

  it('tells of outages after the clock was corrected', async () => {
    const { goes, comes, follow, pass, clock } = open()
    const chat = await startChat()
    await follow({ url: chat.url })
    const DAYS = 3 * 24 * HOUR
    clock.stepWall(DAYS)
    goes('cam')
    goes('door')
    await pass(3 * MINUTE)
    comes('cam')
    await pass(MINUTE)
    await chat.took(2)
    // Due in three days, by the wrong clock.
    goes('gate')
    await pass(10 * SECOND)
    clock.stepWall(-DAYS)
    goes('cam')
    await pass(2 * HOUR)
    await chat.took(3)
    const titles = chat.messages().map(({ title }) => title)
    expect(titles.slice(0, 2)).toEqual(['2 devices are offline', 'cam is back'])
    expect(titles.slice(2).sort()).toEqual(['cam is offline', 'gate is offline'])
  })

  it('retries soon after the clock was set back', async () => {
    const chat = await startChat((n) => (n === 0 ? [500] : [200]))
    const { goes, follow, pass, clock, stateOf } = open()
    const { id } = await follow({ url: chat.url })
    goes('cam')
    await pass(150 * SECOND)
    await eventually(() => expect(stateOf(id)?.failures).toBe(1))
    clock.stepWall(-3 * 24 * HOUR)
    await pass(4 * MINUTE)
    await chat.took(1)
  })

  it('tells of a return that another gateway saw during an attempt', async () => {
    let finish: (() => void) | undefined
    const delay = new Promise<void>((resolve) => {
      finish = resolve
    })
    const chat = await startChat((n) => (n === 0 ? [200, '', delay] : [200]))
    const { goes, comes, follow, pass, stateOf, notifications, clock, ids, log, ...stores } = open()
    const { id } = await follow({ url: chat.url })
    goes('cam')
    await pass(160 * SECOND)
    await eventually(() => expect(chat.attempts()).toBe(1))
    // The duty moves during the attempt. For a moment, both gateways send.
    const deliver = new Delivery({ mailer: undefined, mayDial: () => true, clock, log })
    const next = new Notifications({ ...stores, ids, delivery: deliver, clock, log })
    onTestFinished(() => next.stop())
    next.reclaim()
    await chat.took(1)
    await eventually(() => expect(stateOf(id)?.lastSentAt).toBe(clock.now()))
    comes('cam')
    await clock.advance(SECOND)
    await eventually(() => expect(stores.notices.firstDue(id)).toBeDefined())
    finish?.()
    await eventually(() => expect(stateOf(id)?.lastSentAt).toBe(clock.now()))
    await notifications.release()
    await pass(2 * MINUTE)
    await chat.took(3)
    const titles = chat.messages().map(({ title }) => title)
    expect(titles).toEqual(['cam is offline', 'cam is offline', 'cam is back'])
  })

  it('has nothing of a name but its text: no header, no markup', async () => {
    const smtp = await startSmtpServer()
    const { goes, follow, pass } = open({ port: smtp.port })
    await follow({ kind: 'email', addresses: ['ops@site.example'] })
    goes('cam\r\nBcc: evil@site.example\r\n\r\n<img src=x onerror=alert(1)>\u202e')
    await pass(3 * MINUTE)
    const [mail] = await smtp.took(1)
    expect(mail?.to).toEqual(['ops@site.example'])
    expect(mail?.headers.map(([name]) => name)).not.toContain('bcc')
    expect(mail?.header('content-type')).toMatch(/^text\/plain/)
    expect(mail?.header('subject')).toContain('cam Bcc: evil@site.example <img')
    expect(mail?.text.split('\n')[0]).not.toContain('\r')
    expect(mail?.raw).not.toContain('text/html')
  })

  it('waits while it is paused', async () => {
    const { goes, comes, follow, pass, notifications } = open()
    const chat = await startChat()
    const channel = await follow({ url: chat.url })
    await notifications.update(channel, () => ({ isActive: false }))
    goes('cam')
    goes('door')
    await pass(10 * MINUTE)
    comes('door')
    await pass(HOUR)
    expect(chat.attempts()).toBe(0)
    await notifications.update(channel, () => ({ isActive: true }))
    await chat.took(1)
    expect(chat.messages()).toMatchObject([{ title: 'cam is offline, door was offline' }])
  })

  it('keeps its secrets out of the log and out of answers', async () => {
    const { goes, follow, pass, captured, stateOf, notifications } = open()
    // Parts of a URL, and other notations.
    const chat = await startChat(() => [403, 'no access: secret-key'])
    const { id } = await follow({ url: chat.url })
    goes('cam')
    await pass(3 * MINUTE)
    await eventually(() => expect(stateOf(id)?.failures).toBeGreaterThan(0))
    expect(stateOf(id)?.problem).toBe('The receiver answered with 403 Forbidden.')
    expect(captured.text()).not.toContain('secret-key')
    const channel = notifications.get(id)
    expect(channel && (await notifications.test(channel)).text).not.toContain('secret-key')
  })

  it('of a bot user cannot flood mailboxes', async () => {
    const smtp = await startSmtpServer()
    const { issuer, follow, pass, happen, stateOf } = open({ port: smtp.port })
    const { id: ownerId } = await issuer.createBotUser({ name: 'a' })
    const eventTypes: EventType[] = ['device.refused']
    const channel = { kind: 'email', addresses: ['ops@site.example'], ownerId, eventTypes } as const
    const { id } = await follow(channel)
    for (let n = 0; n < 45; n += 1) {
      happen('device.refused', { ip: '192.0.2.1', text: 'no' }, ownerId)
      await pass(40 * SECOND)
    }
    // 30 minutes: 20 mails, and one every two minutes.
    expect(smtp.mails.length).toBeLessThanOrEqual(36)
    expect(smtp.mails.length).toBeGreaterThanOrEqual(20)
    await pass(20 * MINUTE)
    expect(stateOf(id)?.failures).toBe(0)
    const told = smtp.mails.flatMap(({ text }) => text.match(/Refused: a device/g) ?? [])
    expect(told).toHaveLength(45)
  })

  it('does not reach what GATEWAY_OUTBOUND_ALLOW does not allow', async () => {
    const stores = openGatewayStores(undefined, { mayDial: () => false })
    const { notifications } = stores
    const chat = await startChat()
    const channel = { ...CHANNEL, url: chat.url }
    const attempt = await notifications.test(await notifications.create(channel))
    expect(attempt).toMatchObject({ isTaken: false, status: null })
    expect(attempt.text).toContain('GATEWAY_OUTBOUND_ALLOW does not allow')
    expect(chat.attempts()).toBe(0)
  })
})
