import { once } from 'node:events'
import { describe, expect, it } from 'vitest'
import { deviceMetadata } from '../../../helpers/device-sdk.ts'
import { eventually } from '../../../helpers/eventually.ts'
import {
  bind,
  connectSdk,
  inTime,
  type RunningGateway,
  startGateway,
} from '../../../helpers/running-gateway.ts'

const METADATA = deviceMetadata('process-1')
const DRAIN = JSON.stringify({ 'device-agent': { drain: { within_ms: 1_000 } } })

const told = ({ gateway }: RunningGateway) =>
  gateway.parts.events.after(0, 100).map(({ type, details }) => [type, details.reason])
const lastTold = (running: RunningGateway) => told(running).at(-1)

async function startWithDevice() {
  const running = await startGateway()
  const session = await connectSdk(running, { metadata: METADATA })
  const listener = await bind(session, 'cam.site.test')
  await eventually(() => expect(lastTold(running)).toEqual(['device.online', undefined]))
  const [connected] = running.gateway.parts.sessions.all()
  if (!connected) throw new Error('nobody is connected')
  return { running, session, listener, connected, ...running.gateway.parts }
}

describe('a device on the real SDK', () => {
  it('has stopped when it gave up what it had', async () => {
    const { running, session, listener, deviceStore } = await startWithDevice()
    await inTime(listener.close(), 'close')
    const [connection] = running.gateway.parts.sessions.all()
    connection?.end('the connection closed')
    void session
    await eventually(() => expect(lastTold(running)).toEqual(['device.offline', 'stopped']))
    expect(deviceStore.findByDevice(null, 'device-7')).toBeUndefined()
    expect(deviceStore.page({ limit: 10 })).toMatchObject([
      { deviceId: 'device-7', goneReason: 'stopped', isOnline: false },
    ])
  })

  it('has stopped when it drained', async () => {
    const { running, session, connected, deviceStore } = await startWithDevice()
    const builder = session.httpEndpoint().domain('drain.device-agent.internal')
    await inTime(builder.metadata(DRAIN).listen(), 'drain')
    connected.end('the connection closed')
    await eventually(() => expect(lastTold(running)).toEqual(['device.offline', 'stopped']))
    // What it had is not known to the end of its session, but of before.
    expect(deviceStore.page({ limit: 1 })[0]?.goneReason).toBe('stopped')
  })

  it('is gone when its authtoken is, at once', async () => {
    const { running, issuer, credentials, botUsers } = await startWithDevice()
    const [credential] = credentials.page({ limit: 1 })
    if (!credential) throw new Error('there is no authtoken')
    expect(botUsers.get(credential.ownerId ?? '')).toBeDefined()
    await issuer.deleteCredential(credential)
    await eventually(() => expect(lastTold(running)).toEqual(['device.offline', 'revoked']))
  })

  it('is refused as the account of its authtoken when its owner is switched off', async () => {
    const { running, issuer, botUsers, credentials, events } = await startWithDevice()
    const [credential] = credentials.page({ limit: 1 })
    const owner = botUsers.get(credential?.ownerId ?? '')
    if (!owner) throw new Error('nobody has the authtoken')
    await issuer.updateBotUser(owner, { active: false })
    await expect(connectSdk(running, { metadata: METADATA })).rejects.toThrow('ERR_NGROK_636')
    await eventually(() => expect(lastTold(running)?.[0]).toBe('device.refused'))
    expect(events.page({ limit: 1 })[0]).toMatchObject({
      ownerId: owner.id,
      details: { claimed_device_id: 'device-7', code: 'ERR_NGROK_636', ip: '127.0.0.1' },
    })
  })

  it('is a duplicate when another process has its identity', async () => {
    const { running } = await startWithDevice()
    const second = connectSdk(running, { metadata: deviceMetadata('process-2') })
    await expect(second).rejects.toThrow('ERR_NGROK_830')
    await eventually(() => expect(lastTold(running)?.[0]).toBe('device.duplicate'))
    expect(told(running)).toHaveLength(2)
  })

  it('is kicked when somebody tells it to stop', async () => {
    const running = await startGateway()
    const stopped = new EventTarget()
    const asked = once(stopped, 'stop')
    await connectSdk(running, {
      metadata: METADATA,
      onStop: () => stopped.dispatchEvent(new Event('stop')),
    })
    const [connected] = running.gateway.parts.sessions.all()
    await connected?.command('stop')
    await asked
    await eventually(() => expect(lastTold(running)).toEqual(['device.offline', 'kicked']))
  })

  it('is not told to have gone when the gateway is', async () => {
    const { running, gateway } = { ...(await startWithDevice()), gateway: undefined }
    void gateway
    await running.gateway.stop()
    const next = await startGateway({ dataDir: running.dataDir, authtoken: running.authtoken })
    expect(told(next)).toEqual([['device.online', undefined]])
    const [device] = next.gateway.parts.deviceStore.page({ limit: 1 })
    expect(device && next.gateway.parts.devices.stateOf(device)).toBe('away')
  })
})
