import { spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, readlinkSync } from 'node:fs'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { describe, expect, it, onTestFinished } from 'vitest'
import { NgrokConnector } from '../../../src/agent/ngrok-connector.ts'
import { connectionsTo, NoDelay } from '../../../src/agent/sessions/no-delay.ts'
import { Secret } from '../../../src/base/secret.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { forward, startDeviceService } from '../../helpers/device-sdk.ts'
import { eventually } from '../../helpers/eventually.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'
import { publicRequest } from '../../helpers/public-request.ts'
import { connectSdk, startGateway } from '../../helpers/running-gateway.ts'
import { startTcpService } from '../../helpers/tcp-site.ts'

const ASK =
  'import socket; print(socket.socket(fileno=3).getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))'
const hasPython = spawnSync('python3', ['-c', '']).status === 0

/** What the kernel says of a descriptor of this process; Node has no way to ask. */
function isNoDelay(fd: number): boolean {
  const { stdout } = spawnSync('python3', ['-c', ASK], { stdio: ['ignore', 'pipe', 'ignore', fd] })
  return String(stdout).trim() !== '0'
}

/** The SDK's ends alone: the gateway of this test is in the same process, and has set the option. */
async function stateOf(port: number): Promise<boolean[]> {
  return [...(await connectionsTo(port)).values()].map(isNoDelay)
}

describe.runIf(process.platform === 'linux' && hasPython)(
  'TCP_NODELAY on the SDK’s sockets',
  () => {
    it('is set on each session, which goes on as before', async () => {
      const running = await startGateway()
      const { port } = running.addresses.agent
      const noDelay = new NoDelay(port, captureLog().log)
      const service = await startDeviceService()
      const session = await connectSdk(running)
      await forward(session, service, { domain: 'cam.site.test' })
      expect(await stateOf(port)).toEqual([false])
      await noDelay.apply()
      expect(await stateOf(port)).toEqual([true])
      const second = await connectSdk(running)
      await noDelay.apply()
      expect(await stateOf(port)).toEqual([true, true])
      const ingress = `http://127.0.0.1:${running.addresses.http.port}`
      const body = Buffer.alloc(500_000, 'x')
      const answer = await publicRequest({ ingress, host: 'cam.site.test', method: 'POST', body })
      expect(answer.body.equals(body)).toBe(true)
      await second.close()
    })

    it.each([
      [true, 0],
      [true, 200],
      [false, 0],
    ])(
      'is set on the sessions of an agent if that is wanted: %s, after a preflight of %i ms',
      async (isNoDelay, preflightMs) => {
        const { addresses, authtoken } = await startGateway()
        const { port } = addresses.agent
        const clock = new ManualClock()
        const { log } = captureLog()
        const connector = new NgrokConnector({ version: '0', log, isNoDelay, clock })
        const handlers = { onLost: () => {}, onHeartbeat: () => {}, onCommand: () => {} }
        const session = await connector.connect({
          ...{ authtoken, serverAddr: `localhost:${port}`, metadata: '{}', onDuplicate: () => {} },
          ...{ ...handlers, caCert: readFileSync(addresses.caCertPath, 'utf8'), preflightMs },
        })
        onTestFinished(() => session.close())
        // On a fast link, the names come back first.
        if (preflightMs === 0) {
          expect(await stateOf(port)).toEqual([false])
          await clock.advance(999)
          expect(await stateOf(port)).toEqual([false])
          await clock.advance(1_001)
        }
        await eventually(async () => expect(await stateOf(port)).toEqual([isNoDelay]))
      },
    )

    it.each(['127.0.0.1', '::1'])(
      'finds a connection to %s, and leaves the descriptor as it is',
      async (host) => {
        const server = createServer((socket) => socket.pipe(socket)).listen(0, host)
        await once(server, 'listening')
        onTestFinished(() => {
          server.close()
        })
        const { port } = server.address() as AddressInfo
        const socket = connect({ host, port })
        onTestFinished(() => {
          socket.destroy()
        })
        await new Promise<void>((resolve) => socket.once('connect', resolve))
        const [fd] = (await connectionsTo(port)).values()
        const before = readlinkSync(`/proc/self/fd/${fd}`)
        await new NoDelay(port, captureLog().log).apply()
        expect(await stateOf(port)).toEqual([true])
        expect(readlinkSync(`/proc/self/fd/${fd}`)).toBe(before)
        socket.write('still here')
        expect(String(await new Promise((resolve) => socket.once('data', resolve)))).toBe(
          'still here',
        )
      },
    )

    it('is set on a slow link before the SDK authenticates', async () => {
      const accepted: Socket[] = []
      // As a gateway whose part of the TLS handshake is still on its way.
      const service = await startTcpService((socket) => void accepted.push(socket))
      const { log } = captureLog()
      const connecting = new NgrokConnector({ version: '0', log, isNoDelay: true }).connect({
        authtoken: new Secret('authtoken'),
        serverAddr: `localhost:${service.port}`,
        caCert: undefined,
        metadata: '',
        preflightMs: 400,
        onLost: () => {},
        onHeartbeat: () => {},
        onCommand: () => {},
        onDuplicate: () => {},
      })
      connecting.catch(() => {})
      await eventually(async () => expect(await stateOf(service.port)).toEqual([true]))
      for (const socket of accepted) socket.resetAndDestroy()
      await expect(connecting).rejects.toThrow()
    })

    it('does nothing where there is no connection', async () => {
      const service = await startTcpService(() => {})
      await new NoDelay(service.port, captureLog().log).apply()
      expect(await stateOf(service.port)).toEqual([])
    })
  },
)
