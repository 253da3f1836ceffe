import { queryObjects } from 'node:v8'
import { describe, expect, it } from 'vitest'
import { Http2Connection } from '../../../../src/gateway/ingress/visitor/http2-connection.ts'
import { eventually } from '../../../helpers/eventually.ts'
import { sendFromElsewhere } from '../../../helpers/frame-sender.ts'
import { startIngressSite } from '../../../helpers/ingress-site.ts'

const CONNECTIONS = 60
/** Node itself refers to the last ones. */
const FEW = 4

/** Connections that are left when garbage was collected. */
const held = () => queryObjects(Http2Connection, { format: 'count' })

describe('connections that break a rule before they acknowledge settings', () => {
  it('leave nothing in memory', async () => {
    const site = await startIngressSite({ service: 1 })
    const before = held()
    const { port } = site.addresses.https
    await sendFromElsewhere(port, CONNECTIONS, 'GET / HTTP/1.1\r\n\r\n')
    await eventually(() => expect(held() - before).toBeLessThan(FEW), 5_000)
  })
})
