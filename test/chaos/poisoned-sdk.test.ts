import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { createServer } from 'node:tls'
import { expect, it, onTestFinished } from 'vitest'
import { NgrokConnector } from '../../src/agent/ngrok-connector.ts'
import { Secret } from '../../src/base/secret.ts'
import { agentInFolder, specOf } from '../helpers/agent-in-folder.ts'
import { captureLog } from '../helpers/captured-log.ts'
import { eventually } from '../helpers/eventually.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'
import { createTlsFixture } from '../helpers/tls-fixture.ts'

// Alone in its file: afterwards no connect of the SDK works in this process.
it('asks for a new process when the service shakes hands and then says nothing', async () => {
  const { caPem, certPem, keyPem } = await createTlsFixture()
  const mute = createServer({ cert: certPem, key: keyPem }, (socket) => {
    socket.on('error', () => {}).resume()
    onTestFinished(() => void socket.destroy())
  })
  mute.listen(0, '127.0.0.1')
  await once(mute, 'listening')
  onTestFinished(() => void mute.close())
  const folder = temporaryFolder()
  writeFileSync(join(folder, 'default-policy.json'), '{}')
  const { log } = captureLog()
  let poisoned = 0
  const agent = agentInFolder(folder, {
    connector: new NgrokConnector({ version: '0', log, deadlines: { connectMs: 300 } }),
    authtoken: { files: [], value: new Secret('token') },
    serverAddrs: [`localhost:${(mute.address() as AddressInfo).port}`],
    caCert: caPem,
    onPoisoned: () => {
      poisoned += 1
    },
    log,
  })
  await agent.start()
  await eventually(() => expect(poisoned).toBe(1))
  expect(agent.status()).toMatchObject({ ready: false, link: { reason: 'internal' } })
  expect((await agent.create(specOf('a'))).pending).toBe(true)
  await agent.stop()
})
