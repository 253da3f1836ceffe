import { cpSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { systemClock } from '../../src/base/clock.ts'
import { forward, startDeviceService, visit } from '../helpers/device-sdk.ts'
import { eventually } from '../helpers/eventually.ts'
import { publicRequest } from '../helpers/public-request.ts'
import { connectSdk, inTime, startGateway } from '../helpers/running-gateway.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const CAM = { host: 'cam.site.test' }
const code = ({ headers }: { headers: Record<string, unknown> }) => headers['ngrok-error-code']

/** A gateway of which a copy of the folder is left as a kill would leave it. */
async function killedGateway() {
  const running = await startGateway()
  const service = await startDeviceService()
  const session = await connectSdk(running)
  const listener = await forward(session, service)
  const path = join(running.dataDir, 'names.json')
  await eventually(() => expect(readFileSync(path, 'utf8')).toContain('cam.site.test'))
  const copy = () => {
    const dataDir = temporaryFolder()
    cpSync(running.dataDir, dataDir, { recursive: true })
    return dataDir
  }
  return { running, service, listener, path, copy }
}

it('holds the names of its predecessor, which was killed, until their devices are back', async () => {
  const { running, service, copy } = await killedGateway()
  const next = await startGateway({ dataDir: copy(), authtoken: running.authtoken })
  const waiting = visit(next, { ...CAM, method: 'POST', body: 'hello' })
  const session = await connectSdk(next)
  await forward(session, service)
  expect((await waiting).text).toBe('hello')
})

it('shows visitors of a deep name its certificate before the device is back', async () => {
  const running = await startGateway()
  const host = 'web.cam.site.test'
  await forward(await connectSdk(running), await startDeviceService(), { domain: host })
  const path = join(running.dataDir, 'names.json')
  await eventually(() => expect(readFileSync(path, 'utf8')).toContain(host))
  const dataDir = temporaryFolder()
  cpSync(running.dataDir, dataDir, { recursive: true })
  const next = await startGateway({ dataDir, authtoken: running.authtoken, holdMs: 0 })
  const { https, caCertPath } = next.addresses
  const ca = readFileSync(caCertPath, 'utf8')
  const securely = (name: string) =>
    publicRequest({
      ...{ ingress: `https://${https.host}:${https.port}`, address: https.host, host: name, ca },
    })
  expect((await securely(host)).status).toBe(503)
  await expect(securely('web.invented.site.test')).rejects.toThrow('altnames')
})

it('holds them for longer while its predecessor still lets go of devices, unless nobody is to wait', async () => {
  const { running, copy } = await killedGateway()
  const { authtoken } = running
  const heldMs = async (holdMs: number) => {
    const options = { authtoken, holdMs, hasPredecessor: true, drainMs: 60_000 }
    const { gateway } = await startGateway({ ...options, dataDir: copy() })
    const [name] = gateway.parts.registry.allDisconnected()
    return (name?.heldUntil ?? 0) - systemClock.monotonic()
  }
  expect(await heldMs(10_000)).toBeGreaterThan(30_000)
  expect(await heldMs(0)).toBeLessThanOrEqual(0)
})

it('says of such a name that its device is away, and of one that was given up that nobody has it', async () => {
  const { running, listener, path, copy } = await killedGateway()
  const { authtoken } = running
  const next = await startGateway({ dataDir: copy(), authtoken, holdMs: 0 })
  const away = await visit(next, CAM)
  expect([away.status, code(away)]).toEqual([503, 'ERR_GATEWAY_AWAY'])

  await inTime(listener.close(), 'unbind')
  await eventually(() => expect(readFileSync(path, 'utf8')).toBe('[]'))
  const later = await startGateway({ dataDir: copy(), authtoken, holdMs: 0 })
  expect((await visit(later, CAM)).status).toBe(404)
})

it('gives back no name that its device may not have any more, and starts beside garbage', async () => {
  const { running, path, copy } = await killedGateway()
  const dataDir = copy()
  const [name] = JSON.parse(readFileSync(path, 'utf8'))
  const foreign = { ...name, host: 'cam.elsewhere.test' }
  writeFileSync(join(dataDir, 'names.json'), JSON.stringify([foreign]))
  const { authtoken } = running
  const next = await startGateway({ dataDir, authtoken, holdMs: 0 })
  expect((await visit(next, { host: 'cam.elsewhere.test' })).status).toBe(404)
  await next.gateway.stop()
  writeFileSync(join(dataDir, 'names.json'), '[{"host":')
  const garbage = await startGateway({ dataDir, authtoken, holdMs: 0 })
  expect((await visit(garbage, CAM)).status).toBe(404)
  expect(garbage.logText()).toContain('the file with names of devices is damaged')
})
