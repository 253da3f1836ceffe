import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer, request as httpRequest } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import { join } from 'node:path'
import { connect as tlsConnect } from 'node:tls'
import { describe, expect, it, onTestFinished } from 'vitest'
import { parseCidr } from '../../../src/base/net/network.ts'
import { eventually } from '../../helpers/eventually.ts'
import { RawClient } from '../../helpers/raw-http.ts'
import { connectSdk, inTime, startGateway } from '../../helpers/running-gateway.ts'
import { somePorts } from '../../helpers/some-ports.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

const HOST = 'a.site.test'
const hasProgram = (name: string) => spawnSync(name, ['-v']).status === 0
const hasNginx = hasProgram('nginx')
const hasHaproxy = hasProgram('haproxy')

/** A gateway that trusts one address, and a tunnel to a service that answers with the fields it got. */
async function startSite(sendProxyProtocol: boolean, scheme: 'HTTP' | 'HTTPS') {
  const service = createServer((request, response) => response.end(JSON.stringify(request.headers)))
  service.listen(0, '127.0.0.1')
  await once(service, 'listening')
  onTestFinished(() => {
    service.closeAllConnections()
    service.close()
  })
  const networks = [parseCidr('127.0.0.1') ?? expect.fail('no CIDR')]
  const running = await startGateway({
    proxies: { networks, header: 'x-forwarded-for', sendProxyProtocol },
  })
  const sdk = await connectSdk(running)
  const listener = await inTime(sdk.httpEndpoint().domain(HOST).scheme(scheme).listen())
  listener.forward(`http://127.0.0.1:${(service.address() as AddressInfo).port}`).catch(() => {})
  return running
}

/** Runs a proxy until the test ends, and waits until it listens on the port. */
async function startProxy(command: string, args: readonly string[], port: number): Promise<void> {
  const child: ChildProcess = spawn(command, args, { stdio: ['ignore', 'ignore', 'pipe'] })
  let said = ''
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    said += text
  })
  onTestFinished(async () => {
    const ended = once(child, 'exit')
    if (child.exitCode === null && child.kill('SIGTERM')) await ended
  })
  await eventually(async () => {
    if (child.exitCode !== null) throw new Error(`${command} ended: ${said}`)
    const socket = connect(port, '127.0.0.1')
    try {
      await once(socket, 'connect')
    } finally {
      socket.destroy()
    }
  })
}

async function startNginx(upstream: string): Promise<number> {
  const folder = temporaryFolder()
  const { first: port } = somePorts()
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
    .map((name) => {
      mkdirSync(join(folder, name))
      return `${name}_temp_path ${join(folder, name)};`
    })
    .join('\n')
  const file = join(folder, 'nginx.conf')
  writeFileSync(
    file,
    `daemon off; master_process off; pid ${folder}/nginx.pid; error_log stderr;
events {}
http {
  access_log off; ${temporary}
  upstream gateway { server ${upstream}; keepalive 1; }
  server {
    listen 127.0.0.1:${port};
    location / {
      proxy_pass http://gateway;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $host;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
      proxy_set_header X-Forwarded-Proto https;
    }
  }
}
`,
  )
  await startProxy('nginx', ['-c', file], port)
  return port
}

async function startHaproxy(mode: string, upstream: string): Promise<number> {
  const { first: port } = somePorts()
  const file = join(temporaryFolder(), 'haproxy.cfg')
  writeFileSync(
    file,
    `defaults
  timeout connect 10s
  timeout client 60s
  timeout server 60s
listen front
  bind 127.0.0.1:${port}
  ${mode}
  server gateway ${upstream}
`,
  )
  await startProxy('haproxy', ['-db', '-f', file], port)
  return port
}

/** What the device sees of a request from a loopback address of its own. */
function seenFrom(localAddress: string, port: number, headers: Record<string, string> = {}) {
  return new Promise<Record<string, string>>((resolve, reject) => {
    httpRequest({ port, localAddress, headers: { host: HOST, ...headers } }, (response) => {
      let text = ''
      response.setEncoding('utf8').on('data', (chunk: string) => {
        text += chunk
      })
      response.on('end', () => resolve(JSON.parse(text) as Record<string, string>))
    })
      .on('error', reject)
      .end()
  })
}

describe.runIf(hasNginx)('nginx in front', () => {
  it('passes the address of each client on, by one connection', async () => {
    const { addresses } = await startSite(false, 'HTTPS')
    const port = await startNginx(`127.0.0.1:${addresses.http.port}`)
    for (const ip of ['127.0.5.1', '127.0.5.2', '127.0.5.3']) {
      expect(await seenFrom(ip, port, { 'x-forwarded-for': '6.6.6.6' })).toMatchObject({
        'x-forwarded-for': `6.6.6.6, ${ip}`,
        'x-real-ip': ip,
        'x-forwarded-proto': 'https',
      })
    }
  })
})

describe.runIf(hasHaproxy)('HAProxy in front', () => {
  it.each([
    ['version 1', 'send-proxy'],
    ['version 2', 'send-proxy-v2'],
  ])('passes the address of the client on by the PROXY protocol, %s', async (_version, option) => {
    const { addresses } = await startSite(true, 'HTTP')
    const upstream = `127.0.0.1:${addresses.http.port} ${option}`
    const port = await startHaproxy('mode tcp', upstream)
    expect(await seenFrom('127.0.5.9', port)).toMatchObject({ 'x-forwarded-for': '127.0.5.9' })
  })

  it('passes TLS through behind the PROXY header', async () => {
    const { addresses } = await startSite(true, 'HTTPS')
    const upstream = `127.0.0.1:${addresses.https.port} send-proxy-v2`
    const port = await startHaproxy('mode tcp', upstream)
    const socket = connect({ port, host: '127.0.0.1', localAddress: '127.0.5.9' })
    const ca = readFileSync(addresses.caCertPath)
    const client = new RawClient(tlsConnect({ socket, servername: HOST, ca }))
    client.send(`GET / HTTP/1.1\r\nHost: ${HOST}\r\nConnection: close\r\n\r\n`)
    await client.receive('"x-forwarded-for":"127.0.5.9"')
  })

  it('passes the address of the client on by a header', async () => {
    const { addresses } = await startSite(false, 'HTTP')
    const mode = 'mode http\n  option forwardfor'
    const port = await startHaproxy(mode, `127.0.0.1:${addresses.http.port}`)
    expect(await seenFrom('127.0.5.9', port)).toMatchObject({ 'x-real-ip': '127.0.5.9' })
  })
})
