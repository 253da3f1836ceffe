// biome-ignore-all lint/suspicious/noTemplateCurlyInString: interpolations of policies
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { forward, startDeviceService, visit } from '../../helpers/device-sdk.ts'
import { mmdbFile } from '../../helpers/mmdb-file.ts'
import { connectSdk, startGateway } from '../../helpers/running-gateway.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

const HERE = '127.0.0.0/8'
const CURL = 'curl/8.5.0'
const headers = { 'user-agent': CURL }
const countryOf = (iso: string) => mmdbFile({ [HERE]: { country: { iso_code: iso } } })
const POLICY = JSON.stringify({
  on_http_request: [
    { expressions: ["conn.geo.country_code == 'KP'"], actions: [{ type: 'deny' }] },
    {
      actions: [
        {
          type: 'add-headers',
          config: {
            headers: {
              'x-as': '${string(conn.client_ip.as.number)} ${conn.client_ip.as.organization}',
              'x-from': '${conn.client_ip.geo.location.country_code}',
              'x-agent': '${req.user_agent.name} ${req.user_agent.version}',
            },
          },
        },
      ],
    },
  ],
})

function writeTables() {
  const folder = temporaryFolder()
  const geoPath = join(folder, 'geo.mmdb')
  const asnPath = join(folder, 'asn.mmdb')
  const own = { autonomous_system_number: 64_500, autonomous_system_organization: 'Here' }
  writeFileSync(geoPath, countryOf('DE'))
  writeFileSync(asnPath, mmdbFile({ [HERE]: own }, { type: 'GeoLite2-ASN' }))
  return { geoPath, asnPath }
}

it('lets policies say where visitors are, whose addresses they have, and with what they come', async () => {
  const tables = writeTables()
  const running = await startGateway({ origins: tables })
  const session = await connectSdk(running)
  const service = await startDeviceService((request, response) =>
    response.end(JSON.stringify(request.headers)),
  )
  await forward(session, service, { policy: POLICY })
  const { status, text } = await visit(running, { headers })
  expect(status).toBe(200)
  expect(JSON.parse(text)).toMatchObject({
    'x-as': '64500 Here',
    'x-from': 'DE',
    'x-agent': 'curl 8.5.0',
  })
})

it('is refused by the name of its setting where there is no table', async () => {
  const session = await connectSdk(await startGateway())
  const bound = forward(session, 'http://127.0.0.1:1', { policy: POLICY })
  await expect(bound).rejects.toThrow(/GATEWAY_GEO_DB.*ERR_NGROK_9026$/s)
})

it('keeps out who comes from a country that a policy denies', async () => {
  const { geoPath, asnPath } = writeTables()
  writeFileSync(geoPath, countryOf('KP'))
  const running = await startGateway({ origins: { geoPath, asnPath } })
  const session = await connectSdk(running)
  const service = await startDeviceService((_request, response) => response.end('in'))
  await forward(session, service, { policy: POLICY })
  expect((await visit(running, { headers })).status).toBe(403)
})
