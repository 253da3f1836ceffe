import type { ManagementAnswer } from './gateway-program.ts'
import type { RunningGateway } from './running-gateway.ts'

/** The management API of a gateway that was started with `apiListen`. */
export async function managed({ gateway, addresses }: RunningGateway) {
  const apiKey = await gateway.provisionApiKey({ description: 'test', apiKey: undefined })
  const call = async (
    method: string,
    path: string,
    body?: object,
    key = apiKey.reveal(),
  ): Promise<ManagementAnswer> => {
    const response = await fetch(`http://127.0.0.1:${addresses.api?.port}${path}`, {
      method,
      headers: {
        authorization: `Bearer ${key}`,
        'svc-version': '2',
        ...(body && { 'content-type': 'application/json' }),
      },
      ...(body && { body: JSON.stringify(body) }),
    })
    const text = await response.text()
    return { status: response.status, body: text === '' ? undefined : JSON.parse(text) }
  }
  return { call, apiKey }
}
