import { describe, expect, it } from 'vitest'
import { IpPolicyRanges } from '../../../../src/gateway/resources/ip-policies/ip-policy-ranges.ts'
import { openGatewayStores } from '../../../helpers/gateway-stores.ts'

const rule = (id: string, cidr: string, action: 'allow' | 'deny') => ({
  id,
  ipPolicyId: 'ipp_1',
  cidr,
  action,
  description: '',
  metadata: '',
  createdAt: 0,
})

const POLICY = { id: 'ipp_1', description: '', metadata: '', createdAt: 0 }

describe('IpPolicyRanges', () => {
  it('follows every change of policies and rules', () => {
    const stores = openGatewayStores()
    const { database, ipPolicies, ipPolicyRules } = stores
    const ranges = new IpPolicyRanges(stores)
    const shown = () => {
      const now = ranges.of('ipp_1')
      return now && [now.allow.map(({ text }) => text), now.deny.map(({ text }) => text)]
    }
    expect(shown()).toBeUndefined()
    database.write(() => ipPolicies.insert(POLICY))
    expect(shown()).toEqual([[], []])
    database.write(() => {
      ipPolicyRules.insert(rule('ipr_1', '10.0.0.0/8', 'allow'))
      ipPolicyRules.insert(rule('ipr_2', '10.1.0.0/16', 'deny'))
    })
    expect(shown()).toEqual([['10.0.0.0/8'], ['10.1.0.0/16']])
    database.write(() => ipPolicyRules.delete('ipr_2'))
    expect(shown()).toEqual([['10.0.0.0/8'], []])
    database.write(() => ipPolicies.delete('ipp_1'))
    expect(shown()).toBeUndefined()
  })

  it('reads nothing again while nothing changes', () => {
    const stores = openGatewayStores()
    stores.database.write(() => stores.ipPolicies.insert(POLICY))
    const ranges = new IpPolicyRanges(stores)
    expect(ranges.of('ipp_1')).toBe(ranges.of('ipp_1'))
  })
})
