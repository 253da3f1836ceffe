import { once } from 'node:events'
import { connect } from 'node:net'
import { describe, expect, it } from 'vitest'
import { deviceMetadata, forward, startDeviceService, visit } from '../helpers/device-sdk.ts'
import { eventually } from '../helpers/eventually.ts'
import { connectSdk, startGateway } from '../helpers/running-gateway.ts'

/** A service that answers when it is told to. */
async function startSlowService() {
  const waiting: (() => void)[] = []
  const url = await startDeviceService((_request, response) => {
    response.write('begun ')
    waiting.push(() => response.end('whole'))
  })
  return { url, waiting }
}

describe('a gateway that another process takes over', () => {
  it('serves visitors while the other one has the folder, and takes it back', async () => {
    const running = await startGateway()
    const service = await startDeviceService()
    await forward(await connectSdk(running), service)
    await running.gateway.release()
    const { authtoken, dataDir } = running
    const next = await startGateway({ dataDir, authtoken })
    expect((await visit(running, { method: 'POST', body: 'hello' })).text).toBe('hello')
    await next.gateway.stop()
    await running.gateway.reclaim()
    const key = await running.gateway.provisionApiKey({ description: 'x', apiKey: undefined })
    expect(key.reveal()).not.toBe('')
  })

  it('asks an agent of ours to come to the other one, and ends no session that is in use', async () => {
    const running = await startGateway({ drainMs: 30_000 })
    const slow = await startSlowService()
    const asked: string[] = []
    const ours = await connectSdk(running, {
      metadata: deviceMetadata('process-1'),
      onRestart: () => asked.push('ours'),
    })
    await forward(ours, slow.url)
    const other = await connectSdk(running, { onRestart: () => asked.push('other') })
    await forward(other, slow.url, { domain: 'other.site.test' })
    const idle = await connectSdk(running, { metadata: deviceMetadata('process-2', 'device-8') })
    await forward(idle, slow.url, { domain: 'idle.site.test' })
    const underWay = [visit(running), visit(running, { host: 'other.site.test' })]
    await eventually(() => expect(slow.waiting).toHaveLength(2))
    const { sessions } = running.gateway.parts
    const stranger = connect(running.addresses.agent.port, '127.0.0.1')
    await once(stranger, 'connect')
    const isSentAway = once(stranger, 'close')
    await running.gateway.release()
    running.gateway.handOver()
    await isSentAway
    await eventually(() => expect(asked).toEqual(['ours']))
    // It has said that it is of ours, and brings no second session up.
    await eventually(() => expect(sessions.size).toBe(2))
    slow.waiting[1]?.()
    slow.waiting[0]?.()
    for (const visitor of underWay) expect((await visitor).text).toBe('begun whole')
    // The one that cannot have two sessions comes to the other process when this one ends.
    await eventually(() => expect(sessions.size).toBe(1))
    expect(asked).toEqual(['ours'])
    await expect(visit(running)).rejects.toThrow('ECONNREFUSED')
  })
})
