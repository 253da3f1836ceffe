/**
 * `own-devices.ts SETTINGS-FILE`: agents of ours in one process, each with its API, its data and the
 * real SDK. It prints a line when all have their names, and runs until it is killed.
 */
import { readFileSync } from 'node:fs'
import { systemClock } from '../../src/base/clock.ts'
import { Closer } from '../../src/base/closer.ts'
import { createLogger, LogTail } from '../../src/base/logger.ts'

import { parseConfig } from '../../src/config.ts'
import { startDaemon } from '../../src/daemon.ts'
import type { OwnDevice } from './devices.ts'

const log = createLogger('silent')
const closer = new Closer(log)
const devices: OwnDevice[] = JSON.parse(readFileSync(process.argv[2] ?? '', 'utf8'))
for (const { settings, host: domain, port, policy } of devices) {
  const { agent: config } = parseConfig(settings)
  const { agent } = await startDaemon(
    {
      ...{ config, version: '0', log, logTail: new LogTail() },
      ...{ examine: async () => [], clock: systemClock },
    },
    closer,
  )
  await agent.create({ protocol: 'http', forwardsTo: `localhost:${port}`, domain, policy })
}
process.stdout.write('{}\n')
