//! The controller's answers.

use std::collections::BTreeSet;

use super::*;

async fn list(bed: &Bed, max: i32, token: &str) -> Result<(Vec<String>, String), Code> {
    let request = proto::ListVolumesRequest {
        max_entries: max,
        starting_token: token.to_owned(),
    };
    match bed.controller().list_volumes(Request::new(request)).await {
        Ok(reply) => {
            let reply = reply.into_inner();
            let ids = reply
                .entries
                .into_iter()
                .map(|entry| entry.volume.unwrap().volume_id);
            Ok((ids.collect(), reply.next_token))
        }
        Err(status) => Err(status.code()),
    }
}

async fn capacity(bed: &Bed, node: &str) -> i64 {
    let request = proto::GetCapacityRequest {
        accessible_topology: Some(topology::of_node(DRIVER_NAME, &NodeName::from(node))),
        ..Default::default()
    };
    let reply = bed
        .controller()
        .get_capacity(Request::new(request))
        .await
        .unwrap();
    reply.into_inner().available_capacity
}

#[tokio::test]
async fn the_topology_picks_the_pool() {
    let bed = Bed::new();
    for node in ["one", "two"] {
        let request = proto::CreateVolumeRequest {
            accessibility_requirements: Some(on(&["elsewhere", node])),
            ..creation(node, GIB)
        };
        let reply = bed
            .controller()
            .create_volume(Request::new(request))
            .await
            .unwrap();
        let volume = reply.into_inner().volume.unwrap();
        let expected = topology::of_node(DRIVER_NAME, &NodeName::from(node));
        assert_eq!(volume.accessible_topology, [expected]);
        assert_eq!(volume.capacity_bytes, GIB);
        assert!(
            bed.path(&format!("pool-{node}/volumes"))
                .join(volume.volume_id)
                .exists()
        );
    }
    let request = proto::CreateVolumeRequest {
        accessibility_requirements: Some(on(&["elsewhere"])),
        ..creation("three", GIB)
    };
    let reply = bed.controller().create_volume(Request::new(request)).await;
    assert_eq!(code(reply), Err(Code::ResourceExhausted));
}

#[tokio::test]
async fn a_name_means_one_volume() {
    let bed = Bed::new();
    let id = bed.volume("data", GIB).await;
    let other_size = bed
        .controller()
        .create_volume(Request::new(creation("data", 2 * GIB)))
        .await;
    assert_eq!(code(other_size), Err(Code::AlreadyExists));
    let elsewhere = proto::CreateVolumeRequest {
        accessibility_requirements: Some(on(&["two"])),
        ..creation("data", GIB)
    };
    let reply = bed
        .controller()
        .create_volume(Request::new(elsewhere))
        .await;
    assert_eq!(code(reply), Err(Code::AlreadyExists));
    let odd = bed.volume("../../../etc/passwd\n-rf", GIB).await;
    assert_ne!(odd, id);
    assert!(VolumeId::parse(&odd).is_some());
}

#[tokio::test]
async fn requests_that_cannot_be_met_are_refused_with_the_right_code() {
    let bed = Bed::new();
    let base = || creation("x", GIB);
    let many = with_mode(
        AccessType::Mount(MountVolume::default()),
        WireMode::MultiNodeMultiWriter,
    );
    let range = |required_bytes, limit_bytes| {
        Some(proto::CapacityRange {
            required_bytes,
            limit_bytes,
        })
    };
    let parameter = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
    let cases = [
        (
            proto::CreateVolumeRequest {
                name: String::new(),
                ..base()
            },
            Code::InvalidArgument,
        ),
        (
            proto::CreateVolumeRequest {
                name: "\u{7}".into(),
                ..base()
            },
            Code::InvalidArgument,
        ),
        (
            proto::CreateVolumeRequest {
                name: "x".repeat(129),
                ..base()
            },
            Code::InvalidArgument,
        ),
        (
            proto::CreateVolumeRequest {
                volume_capabilities: vec![],
                ..base()
            },
            Code::InvalidArgument,
        ),
        (
            proto::CreateVolumeRequest {
                volume_capabilities: vec![many],
                ..base()
            },
            Code::InvalidArgument,
        ),
        (
            proto::CreateVolumeRequest {
                volume_capabilities: vec![files("zfs")],
                ..base()
            },
            Code::InvalidArgument,
        ),
        (
            proto::CreateVolumeRequest {
                capacity_range: range(-1, 0),
                ..base()
            },
            Code::InvalidArgument,
        ),
        (
            proto::CreateVolumeRequest {
                capacity_range: range(2, 1),
                ..base()
            },
            Code::InvalidArgument,
        ),
        (
            proto::CreateVolumeRequest {
                capacity_range: range(1, 4096),
                ..base()
            },
            Code::OutOfRange,
        ),
        (
            proto::CreateVolumeRequest {
                capacity_range: range(1 << 60, 0),
                ..base()
            },
            Code::ResourceExhausted,
        ),
        (
            proto::CreateVolumeRequest {
                parameters: parameter("raid", "5"),
                ..base()
            },
            Code::InvalidArgument,
        ),
        (
            proto::CreateVolumeRequest {
                mutable_parameters: parameter("iops", "5"),
                ..base()
            },
            Code::InvalidArgument,
        ),
    ];
    for (request, expected) in cases {
        let reply = bed.controller().create_volume(Request::new(request)).await;
        assert_eq!(code(reply), Err(expected));
    }
    assert_eq!(bed.leftovers(), Vec::<String>::new());
}

#[tokio::test]
async fn parallel_identical_calls_make_one_volume() {
    let bed = Bed::new();
    let controller = bed.controller();
    let calls: Vec<_> = (0..32)
        .map(|_| {
            let controller = controller.clone();
            tokio::spawn(async move {
                controller
                    .create_volume(Request::new(creation("data", GIB)))
                    .await
            })
        })
        .collect();
    let mut ids = BTreeSet::new();
    for call in calls {
        match call.await.unwrap() {
            Ok(reply) => {
                ids.insert(reply.into_inner().volume.unwrap().volume_id);
            }
            Err(status) => assert_eq!(status.code(), Code::Aborted),
        }
    }
    assert_eq!(ids.len(), 1);
    assert_eq!(bed.leftovers().len(), 1);
}

#[tokio::test]
async fn pages_miss_nothing_and_survive_deletions() {
    let mut bed = Bed::new();
    let mut made = Vec::new();
    for index in 0..5 {
        made.push(bed.volume(&format!("v{index}"), GIB).await);
    }
    let (first, token) = list(&bed, 2, "").await.unwrap();
    assert_eq!(first, made[..2]);
    bed.delete(&made[1]).await.unwrap();
    made.push(bed.volume("late", GIB).await);
    bed.restart();
    let (second, token) = list(&bed, 2, &token).await.unwrap();
    assert_eq!(second, made[2..4]);
    let (rest, token) = list(&bed, 0, &token).await.unwrap();
    assert_eq!(rest, made[4..]);
    assert_eq!(token, "");
    assert_eq!(list(&bed, 0, "no-such-token").await, Err(Code::Aborted));
    assert_eq!(list(&bed, -1, "").await, Err(Code::InvalidArgument));
}

#[tokio::test]
async fn lists_name_the_nodes_that_a_volume_is_published_on() {
    let bed = Bed::new();
    let id = bed.volume("data", GIB).await;
    bed.attach(&id, "one", false).await.unwrap();
    let reply = bed
        .controller()
        .list_volumes(Request::new(proto::ListVolumesRequest::default()))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        reply.entries[0].status.clone().unwrap().published_node_ids,
        ["one"]
    );
    let request = proto::ControllerGetVolumeRequest { volume_id: id };
    let reply = bed
        .controller()
        .controller_get_volume(Request::new(request))
        .await
        .unwrap();
    assert_eq!(
        reply.into_inner().status.unwrap().published_node_ids,
        ["one"]
    );
}

#[tokio::test]
async fn promised_bytes_are_not_promised_twice() {
    let mut bed = Bed::new();
    let before = capacity(&bed, "one").await;
    let most = before / 4 * 3;
    let id = bed.volume("large", most).await;
    // Others write to this disk as well while we look.
    let slack = GIB;
    assert!((capacity(&bed, "one").await - (before - most)).abs() < slack);
    bed.restart();
    assert!((capacity(&bed, "one").await - (before - most)).abs() < slack);
    let request = proto::CreateVolumeRequest {
        accessibility_requirements: Some(on(&["one"])),
        ..creation("another", most)
    };
    let reply = bed.controller().create_volume(Request::new(request)).await;
    assert_eq!(code(reply), Err(Code::ResourceExhausted));
    bed.delete(&id).await.unwrap();
    assert!((capacity(&bed, "one").await - before).abs() < slack);
    assert_eq!(capacity(&bed, "elsewhere").await, 0);
}

#[tokio::test]
async fn a_shrinking_or_impossible_expansion_is_out_of_range() {
    let bed = Bed::new();
    let id = bed.volume("data", GIB).await;
    let expand = |required_bytes, limit_bytes| {
        let request = proto::ControllerExpandVolumeRequest {
            volume_id: id.clone(),
            capacity_range: Some(proto::CapacityRange {
                required_bytes,
                limit_bytes,
            }),
            ..Default::default()
        };
        let controller = bed.controller();
        async move {
            controller
                .controller_expand_volume(Request::new(request))
                .await
        }
    };
    assert_eq!(code(expand(0, MIB).await), Err(Code::OutOfRange));
    assert_eq!(code(expand(-1, 0).await), Err(Code::InvalidArgument));
    assert_eq!(code(expand(1 << 60, 0).await), Err(Code::OutOfRange));
    let reply = expand(2 * GIB, 0).await.unwrap().into_inner();
    assert_eq!(reply.capacity_bytes, 2 * GIB);
    // Never staged, so there is nothing on any node to follow.
    assert!(!reply.node_expansion_required);
    assert_eq!(
        expand(GIB, 0).await.unwrap().into_inner().capacity_bytes,
        2 * GIB
    );
}

#[tokio::test]
async fn capabilities_are_confirmed_only_if_all_can_be_had() {
    let bed = Bed::new();
    let id = bed.volume("data", GIB).await;
    let validate = |volume_id: &str, capabilities: Vec<proto::VolumeCapability>| {
        let request = proto::ValidateVolumeCapabilitiesRequest {
            volume_id: volume_id.to_owned(),
            volume_capabilities: capabilities,
            ..Default::default()
        };
        let controller = bed.controller();
        async move {
            let reply = controller
                .validate_volume_capabilities(Request::new(request))
                .await;
            reply
                .map(tonic::Response::into_inner)
                .map_err(|status| status.code())
        }
    };
    assert!(
        validate(&id, vec![files(""), block()])
            .await
            .unwrap()
            .confirmed
            .is_some()
    );
    let many = with_mode(
        AccessType::Block(BlockVolume {}),
        WireMode::MultiNodeMultiWriter,
    );
    let refused = validate(&id, vec![files(""), many]).await.unwrap();
    assert!(refused.confirmed.is_none() && !refused.message.is_empty());
    assert_eq!(
        validate(&id, vec![]).await.unwrap_err(),
        Code::InvalidArgument
    );
    assert_eq!(
        validate("v-none", vec![files("")]).await.unwrap_err(),
        Code::NotFound
    );
}
