import { faultTable } from '../../helpers/fault-table.ts'

faultTable('a fault between the device and its gateway', {
  'the CA certificate is not set': {
    settings: { SVC_CA_CERT: undefined },
    headline: /^The tunnel does not work\. The service has a certificate of an unknown CA/,
    check: 'link',
    detail: /certificate of an unknown CA/,
    remedy: /^Copy ca\.pem of the gateway to the device, and set SVC_CA_CERT to its path\./,
    mend: (device) => device.start({ SVC_CA_CERT: device.on.addresses.caCertPath }),
  },
  'the name of the gateway is unknown': {
    settings: { SVC_SERVER_ADDR: 'gateway.invalid:4443' },
    headline: /^The tunnel does not work\. gateway\.invalid cannot be resolved by DNS/,
    check: 'dns gateway.invalid:4443',
    detail: /cannot be resolved/,
    remedy: /DNS server of the device/,
    mend: (device) => device.start({ SVC_SERVER_ADDR: device.serverAddr }),
  },
})
