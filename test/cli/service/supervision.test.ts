import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { Closer } from '../../../src/base/closer.ts'
import { Supervision } from '../../../src/cli/service/supervision.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { eventually } from '../../helpers/eventually.ts'
import { listenAsServiceManager } from '../../helpers/notify-socket.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

/** A service that is up, with what its service manager has heard since. */
async function startSupervised() {
  const address = join(temporaryFolder(), 'notify')
  const received = listenAsServiceManager(address)
  const { log } = captureLog()
  const stop = new AbortController()
  const closer = new Closer(log)
  onTestFinished(() => closer.close())
  const environment = { NOTIFY_SOCKET: address }
  const supervision = await Supervision.open({ environment, log, stop: stop.signal }, closer)
  supervision.ready({ database: { ping: () => {} }, sentence: () => 'fine' }, closer)
  const heard = async (...texts: readonly string[]) => {
    await eventually(() => expect(received).toHaveLength(texts.length))
    expect(received.map((text) => text.replace(/\d+$/, 'N'))).toEqual(texts)
  }
  return { supervision, stop, heard }
}

const [READY, RELOADING] = ['READY=1\nSTATUS=fine', 'RELOADING=1\nMONOTONIC_USEC=N']

describe('the service manager', () => {
  it('hears that a service is up, and again after a reload that came to nothing', async () => {
    const { supervision, stop, heard } = await startSupervised()
    supervision.reloading()
    supervision.reloadFailed()
    stop.abort()
    await heard(READY, RELOADING, READY, 'STOPPING=1\nSTATUS=stopping')
  })

  it('hears of the process that has taken over, and that it is missed', async () => {
    const { supervision, heard } = await startSupervised()
    supervision.leaveTo(4242)
    supervision.bereft('it died')
    const ending = `MAINPID=${process.pid}\nSTOPPING=1\nSTATUS=it died`
    await heard(READY, 'MAINPID=N', ending)
  })

  it('hears nothing of one that was told to stop like this one', async () => {
    const { supervision, stop, heard } = await startSupervised()
    supervision.leaveTo(4242)
    stop.abort()
    supervision.bereft('it ended')
    supervision.reloading()
    // What is said comes in its order: nothing is on its way any more.
    const { supervision: other, heard: otherHeard } = await startSupervised()
    other.reloading()
    await otherHeard(READY, RELOADING)
    await heard(READY, 'MAINPID=N')
  })
})
