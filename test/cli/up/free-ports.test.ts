import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { expect, it, onTestFinished } from 'vitest'
import { withFreePorts } from '../../../src/cli/up.ts'
import { parseConfig } from '../../../src/config.ts'
import { lockFolder } from '../../../src/store/data-folder.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

/** The configuration of a machine where another program has the usual port of visitors. */
async function withTaken() {
  const other = createServer().listen(0, '127.0.0.1')
  await once(other, 'listening')
  onTestFinished(() => void other.close())
  const taken = { host: '127.0.0.1', port: (other.address() as AddressInfo).port }
  const free = (port: number) => ({ host: '127.0.0.1', port })
  const { agent, gateway, ...rest } = parseConfig({})
  const config = {
    ...rest,
    agent: { ...agent, listen: free(0) },
    gateway: {
      ...gateway,
      agentListen: free(0),
      httpListen: taken,
      httpsListen: free(0),
      apiListen: free(0),
    },
  }
  return { config, taken, captured: captureLog() }
}

it('takes a free port for one that another program has, and says so', async () => {
  const { config, taken, captured } = await withTaken()
  const { gateway } = await withFreePorts(config, {}, captured.log)
  expect(gateway.httpListen).toEqual({ host: '127.0.0.1', port: 0 })
  expect(captured.lines).toEqual([
    expect.objectContaining({
      level: 'warn',
      setting: 'GATEWAY_HTTP_LISTEN',
      msg: `127.0.0.1:${taken.port} is already in use, using a free port instead`,
    }),
  ])
})

it('leaves alone what somebody has set', async () => {
  const { config, captured } = await withTaken()
  const set = { GATEWAY_HTTP_LISTEN: 'given' }
  expect(await withFreePorts(config, set, captured.log)).toEqual(config)
  expect(captured.lines).toEqual([])
})

it('looks for another gateway in the folder before it looks at the ports', async () => {
  const { config, captured } = await withTaken()
  const dataDir = temporaryFolder()
  const lock = lockFolder({ folder: dataDir, owner: 'gateway', log: captured.log })
  onTestFinished(() => lock.release())
  const own = { ...config, gateway: { ...config.gateway, dataDir } }
  await expect(withFreePorts(own, {}, captured.log)).rejects.toThrow(
    `Another gateway is using the data directory ${dataDir}.`,
  )
  expect(captured.lines).toEqual([])
})
