import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { createDeferred } from '../../src/base/deferred.ts'
import { formatListenAddress } from '../../src/base/listen-address.ts'
import { eventually } from '../helpers/eventually.ts'
import { Program } from '../helpers/program.ts'
import { publicRequest } from '../helpers/public-request.ts'
import { startGateway } from '../helpers/running-gateway.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const EVERY_MS = 20
const MOST = 400

/** An agent as a process, with a tunnel to a service whose `/slow` answers when it is told to. */
async function agentProcess() {
  const gateway = await startGateway({ holdMs: 60_000 })
  const { addresses, authtoken } = gateway
  const slow = createDeferred()
  let waiting = 0
  const service = createServer(async ({ url }, response) => {
    if (url !== '/slow') return void response.end('hello')
    waiting += 1
    response.write('the ')
    await slow.promise
    response.end('whole')
  })
  await new Promise<void>((resolve) => service.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => void service.close().closeAllConnections())
  const { port } = service.address() as AddressInfo
  const folder = temporaryFolder()
  const visit = async (path = '/') => {
    const ingress = `http://${formatListenAddress(addresses.http)}`
    const { status, text } = await publicRequest({ ingress, host: 'a.site.test', path })
    return status === 200 ? text : status
  }
  const start = async (env: Record<string, string> = {}) => {
    const program = new Program({
      args: ['run', '--json'],
      cwd: folder,
      env: {
        SVC_SERVER_ADDR: formatListenAddress(addresses.agent).replace('127.0.0.1', 'localhost'),
        SVC_CA_CERT: addresses.caCertPath,
        SVC_AUTHTOKEN: authtoken.reveal(),
        ...env,
      },
    })
    onTestFinished(async () => void (await program.end('SIGKILL')))
    const { agent_api: api } = await program.ready<{ agent_api: string }>()
    return { program, api }
  }
  const { program, api } = await start()
  const created = await fetch(`${api}/tunnels`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${readFileSync(join(folder, 'data/api-token'), 'utf8').trim()}`,
      'content-type': 'application/json',
    },
    body: JSON.stringify({
      protocol: 'http',
      forwards_to: `localhost:${port}`,
      domain: 'a.site.test',
      policy: {},
    }),
  })
  expect(created.ok).toBe(true)
  await eventually(async () => expect(await visit()).toBe('hello'))
  return { ...gateway, program, start, visit, release: slow.resolve, waiting: () => waiting }
}

function visitors(visit: () => Promise<string | number>) {
  const visits: Promise<string | number>[] = []
  const timer = setInterval(() => {
    // As many as may wait for a device that a busy machine starts slowly.
    if (visits.length >= MOST) return
    visits.push(visit().catch((error: Error) => error.message))
  }, EVERY_MS)
  onTestFinished(() => clearInterval(timer))
  return async () => {
    clearInterval(timer)
    return (await Promise.all(visits)).filter((answer) => answer !== 'hello')
  }
}

describe('an agent as a process', () => {
  it('restarts without a visitor noticing, and what is under way ends whole', async () => {
    const on = await agentProcess()
    const slow = on.visit('/slow')
    await eventually(() => expect(on.waiting()).toBe(1))
    const end = visitors(on.visit)
    const ended = on.program.end('SIGTERM')
    await eventually(() => expect(on.gateway.parts.registry.size).toBe(0))
    on.release()
    expect(await slow).toBe('the whole')
    expect(await ended).toMatchObject({ code: 0 })
    await on.start()
    await eventually(async () => expect(on.gateway.parts.registry.size).toBe(1))
    expect(await end()).toEqual([])
  })

  it('is killed without a visitor who can be asked again noticing', async () => {
    const on = await agentProcess()
    const end = visitors(on.visit)
    await on.program.end('SIGKILL')
    await on.start()
    await eventually(async () => expect(on.gateway.parts.registry.size).toBe(1))
    expect(await end()).toEqual([])
  })

  it('goes on after a SIGHUP as a service, and says what to do instead', async () => {
    const on = await agentProcess()
    const { program } = on
    program.child.kill('SIGHUP')
    const said = 'SIGHUP ignored, the agent has no reload; use systemctl restart device-agent'
    await eventually(() => expect(program.stderr).toContain(said))
    expect(await on.visit()).toBe('hello')
    expect(await program.end('SIGTERM')).toMatchObject({ code: 0 })
  })

  it('ends at once at a second signal', async () => {
    const on = await agentProcess()
    const slow = on.visit('/slow').catch(() => 'cut')
    await eventually(() => expect(on.waiting()).toBe(1))
    on.program.child.kill('SIGTERM')
    await eventually(() => expect(on.gateway.parts.registry.size).toBe(0))
    expect(await on.program.end('SIGTERM')).toMatchObject({ code: 143 })
    on.release()
    await slow
  })
})
