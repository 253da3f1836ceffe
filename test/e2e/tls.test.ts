import { spawn, spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { describe, expect, it, onTestFinished } from 'vitest'
import { runProgram } from '../helpers/program.ts'
import { Site } from '../helpers/site.ts'
import { readAll, startTcpService } from '../helpers/tcp-site.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'
import { createAuthority } from '../helpers/tls-fixture.ts'
import { startTlsService } from '../helpers/tls-site.ts'

const HOST = 'plc.site.localhost'
const hasOpenssl = spawnSync('openssl', ['version']).status === 0

async function startSite() {
  const folder = temporaryFolder()
  // For a machine on which an agent takes its time to start.
  const site = await Site.start(folder, { GATEWAY_HOLD_SECONDS: '60' })
  onTestFinished(() => site.stop())
  const add = async (to: number, ...options: string[]) => {
    const env = { AGENT_DATA_DIR: join(folder, 'agent') }
    const args = ['tunnels', 'add', '--protocol', 'tls', HOST, String(to), '--json', ...options]
    const { stdout } = await runProgram({ args, cwd: folder, env })
    await site.online(1)
    return JSON.parse(stdout)
  }
  /** What OpenSSL's client hears of the service, and how it ends. */
  const visit = async (...options: string[]) => {
    const { host } = new URL(site.ready.ingress_https)
    const args = ['s_client', '-connect', host, '-servername', HOST, '-quiet']
    const client = spawn('openssl', [...args, '-verify_return_error', ...options])
    // It may be gone before it has read this.
    client.stdin.on('error', () => {})
    client.stdin.write('hello')
    const heard = text(client.stdout)
    client.stdout.once('data', () => client.stdin.end())
    await new Promise((resolve) => client.once('exit', resolve))
    return heard
  }
  const file = (name: string, content: string) => {
    writeFileSync(join(folder, name), content, { mode: 0o600 })
    return join(folder, name)
  }
  return { site, add, visit, file }
}

describe.runIf(hasOpenssl)('a tls tunnel, for a client of another house', () => {
  it('leads to the device, which may be killed meanwhile', async () => {
    const { site, add, visit, file } = await startSite()
    const service = await startTlsService((socket) => {
      socket.once('data', (chunk) => socket.end(`heard ${chunk}`))
    })
    const { port } = new URL(site.ready.ingress_https)
    expect(await add(service.port)).toMatchObject({ url: `tls://${HOST}:${port}`, protocol: 'tls' })
    const ca = file('service-ca.pem', service.caPem)
    expect(await visit('-CAfile', ca)).toBe('heard hello')
    await site.agent.end('SIGKILL')
    const waiting = visit('-CAfile', ca)
    await site.startAgent()
    expect(await waiting).toBe('heard hello')
  })

  it('asks for certificates of clients where its policy does', async () => {
    const { site, add, visit, file } = await startSite()
    const service = await startTcpService((socket) => {
      void readAll(socket)
      socket.once('data', (chunk) => socket.end(`heard ${chunk}`))
    })
    const { caPem, issue } = await createAuthority()
    const config = { mutual_tls_certificate_authorities: [caPem] }
    const policy = { on_tcp_connect: [{ actions: [{ type: 'terminate-tls', config }] }] }
    await add(service.port, '--policy', file('policy.json', JSON.stringify(policy)))
    const { certPem, keyPem } = await issue({ purpose: 'client' })
    const certificate = ['-cert', file('client.pem', certPem), '-key', file('client.key', keyPem)]
    const trust = ['-CAfile', site.ready.ca_cert, '-verify_hostname', HOST]
    for (const version of ['-tls1_2', '-tls1_3']) {
      expect(await visit(version, ...trust, ...certificate)).toBe('heard hello')
      expect(await visit(version, ...trust)).toBe('')
    }
  })
})
