import { once } from 'node:events'
import type { ClientHttp2Session } from 'node:http2'
import { createServer } from 'node:net'
import { expect, it, onTestFinished } from 'vitest'
import { answerOf, connectHttp2, openStream } from '../../../helpers/http2-visitor.ts'
import { startIngressSite } from '../../../helpers/ingress-site.ts'
import { startLoginService, TYPE_1, TYPE_2, TYPE_3 } from '../../../helpers/login-service.ts'
import { RawClient } from '../../../helpers/raw-http.ts'

const get = (user?: string, credentials?: string) =>
  `GET / HTTP/1.1\r\nHost: a.test\r\n${user ? `x-user: ${user}\r\n` : ''}${credentials ? `Authorization: ${credentials}\r\n` : ''}\r\n`

async function logIn(client: RawClient, user: string): Promise<void> {
  client.send(get(user))
  await client.receive('who are you')
  client.send(get(user, TYPE_1))
  await client.receive(TYPE_2)
  client.send(get(user, TYPE_3))
  await client.receive(`you are ${user}`)
}

it('keeps a login with the connection of its visitor, who stays logged in', async () => {
  const service = await startLoginService()
  const site = await startIngressSite({ service: service.port })
  const client = RawClient.connect(site.addresses.http.port)
  await logIn(client, 'ann')
  const other = RawClient.connect(site.addresses.http.port)
  other.send(get())
  expect(await other.receive('\r\n\r\n')).toContain('401')
  client.send(get())
  await expect.poll(() => client.text.match(/you are ann/g)?.length).toBe(2)
})

it('keeps many logins at once apart', async () => {
  const service = await startLoginService()
  const site = await startIngressSite({ service: service.port })
  const users = Array.from({ length: 8 }, (_, index) => `user-${index}.`)
  const clients = users.map(() => RawClient.connect(site.addresses.http.port))
  await Promise.all(clients.map((client, index) => logIn(client, users[index] as string)))
  for (const client of clients) client.send(get())
  for (const [index, client] of clients.entries()) {
    await expect.poll(() => client.text.split(`you are ${users[index]}`)).toHaveLength(3)
  }
})

it('ends the connection to the service with that of the visitor', async () => {
  const service = await startLoginService()
  const site = await startIngressSite({ service: service.port })
  const client = RawClient.connect(site.addresses.http.port)
  await logIn(client, 'ann')
  expect(service.sockets.size).toBeGreaterThan(0)
  client.socket.destroy()
  await expect.poll(() => service.sockets.size).toBe(0)
})

it('keeps a login with an HTTP/2 connection', async () => {
  const service = await startLoginService()
  const site = await startIngressSite({ service: service.port })
  const session = await connectHttp2(site)
  const ask = async (authorization?: string) =>
    (
      await answerOf(
        openStream(session, { 'x-user': 'ann', ...(authorization ? { authorization } : {}) }),
      )
    ).status
  expect([await ask(), await ask(TYPE_1), await ask(TYPE_3), await ask()]).toEqual([
    401, 401, 200, 200,
  ])
  const other = await connectHttp2(site)
  expect((await answerOf(openStream(other))).status).toBe(401)
})

it('keeps logins of many HTTP/2 connections at once apart', async () => {
  const service = await startLoginService()
  const site = await startIngressSite({ service: service.port })
  const users = Array.from({ length: 6 }, (_, index) => `user-${index}.`)
  const sessions = await Promise.all(users.map(() => connectHttp2(site)))
  const ask = (at: number, authorization?: string) =>
    answerOf(
      openStream(sessions[at] as ClientHttp2Session, {
        ...(authorization ? { 'x-user': users[at], authorization } : {}),
      }),
    )
  const all = (authorization?: string) => Promise.all(users.map((_, at) => ask(at, authorization)))
  expect((await all(TYPE_1)).map(({ status }) => status)).toEqual(users.map(() => 401))
  await all(TYPE_3)
  for (let round = 0; round < 3; round += 1) {
    const answers = await all()
    expect(answers.map(({ body }) => body.toString())).toEqual(
      users.map((user) => `you are ${user}`),
    )
  }
})

it('leaves no login of several streams of an HTTP/2 connection to another connection', async () => {
  const service = await startLoginService()
  const site = await startIngressSite({ service: service.port })
  const session = await connectHttp2(site)
  const other = await connectHttp2(site)
  const ask = (at: ClientHttp2Session, authorization?: string) =>
    answerOf(openStream(at, { 'x-user': 'ann', ...(authorization ? { authorization } : {}) }))
  const four = <T>(work: () => T) => Promise.all([work(), work(), work(), work()])
  await four(() => ask(session, TYPE_1))
  const [answers, foreign] = await Promise.all([
    four(() => ask(session, TYPE_3)),
    // Steps of a login that this connection has not begun.
    four(() => ask(other, TYPE_3)),
  ])
  expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200])
  expect(foreign.map(({ status }) => status)).toEqual([401, 401, 401, 401])
  expect((await four(() => ask(other))).map(({ status }) => status)).toEqual([401, 401, 401, 401])
  session.destroy()
  other.destroy()
  await expect.poll(() => service.sockets.size).toBe(0)
})

it('keeps a login whose last answer proves the service, as Kerberos does', async () => {
  const server = createServer((socket) => {
    let isIn = false
    socket.on('error', () => {})
    socket.on('data', (chunk) => {
      isIn ||= chunk.includes('Authorization: Negotiate YII')
      const proof = chunk.includes('Authorization')
        ? 'WWW-Authenticate: Negotiate oRQwEg=='
        : 'X: y'
      const status = isIn ? `200 OK\r\n${proof}` : '401 Unauthorized\r\nWWW-Authenticate: Negotiate'
      socket.write(`HTTP/1.1 ${status}\r\nContent-Length: 0\r\n\r\n`)
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  const site = await startIngressSite({ service: (server.address() as { port: number }).port })
  const client = RawClient.connect(site.addresses.http.port)
  client.send(get('ann', 'Negotiate YIIabc'))
  await client.receive('Negotiate oRQwEg==')
  client.send(get('ann'))
  await expect
    .poll(() => client.text.match(/^HTTP\/1.1 \d+/gm))
    .toEqual(['HTTP/1.1 200', 'HTTP/1.1 200'])
})
