import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { GatewayProgram } from '../helpers/gateway-program.ts'
import { Program, runProgram } from '../helpers/program.ts'
import type { RunReady } from '../helpers/site.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

/** The address of a service that answers every request with this status. */
async function answering(status: number): Promise<string> {
  const server = createServer((_request, response) => response.writeHead(status).end('{}'))
  server.listen(0, '127.0.0.1')
  onTestFinished(() => void server.close())
  await once(server, 'listening')
  return `127.0.0.1:${(server.address() as AddressInfo).port}`
}

const run = (args: readonly string[], env: Readonly<Record<string, string>> = {}) =>
  runProgram({ args, cwd: temporaryFolder(), env })

describe('the commands for containers, which have no shell', () => {
  it('print the files of the gateway and its health', async () => {
    const folder = temporaryFolder()
    const gateway = await GatewayProgram.start(folder)
    const shown = { GATEWAY_DATA_DIR: join(folder, 'gateway') }
    const key = await run(['gateway', 'show', 'api-key'], shown)
    expect(key).toMatchObject({ code: 0, stdout: `${gateway.apiKey}\n` })
    expect((await run(['gateway', 'show', 'ca'], shown)).stdout).toBe(gateway.ca)
    expect((await run(['gateway', 'show', 'authtoken'], shown)).stdout).toMatch(/^\S{40,}\n$/)

    const address = new URL(gateway.ready.management_api).host
    const healthy = await run(['health', '--gateway'], { GATEWAY_API_LISTEN: address })
    expect(healthy).toMatchObject({ code: 0, stdout: `The gateway at ${address} is healthy.\n` })
    await gateway.program.end()
    const ended = await run(['health', '--gateway'], { GATEWAY_API_LISTEN: address })
    expect(ended.code).toBe(1)
    expect(ended.stderr).toContain(`The gateway does not answer at ${address} (ECONNREFUSED).`)
  })

  it('say that an agent works, or that it does not', async () => {
    const folder = temporaryFolder()
    const env = { AGENT_DATA_DIR: join(folder, 'agent'), AGENT_LISTEN: '127.0.0.1:0' }
    const agent = new Program({ args: ['run', '--json'], cwd: folder, env })
    onTestFinished(() => agent.end().then(() => undefined))
    const { host } = new URL((await agent.ready<RunReady>()).agent_api)
    const healthy = await run(['health'], { AGENT_LISTEN: host })
    expect(healthy).toMatchObject({ code: 0, stdout: `The agent at ${host} is healthy.\n` })
    const sick = await answering(500)
    const ended = await run(['health'], { AGENT_LISTEN: sick })
    expect(ended.code).toBe(1)
    expect(ended.stderr).toContain(`The agent at ${sick} is not healthy (status 500).`)
  })

  it('say what to do when a file is not there', async () => {
    const ended = await run(['gateway', 'show', 'api-key'], { GATEWAY_DATA_DIR: '/nowhere' })
    expect(ended.code).toBe(1)
    expect(ended.stderr).toContain('Start the gateway once, or set GATEWAY_DATA_DIR')
  })
})
